"""The `tunable` backend, its clock, and its own tuner: one that verifies nothing."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tilebench_core import Backend, Compilation, Config, Device, Kernel, LaunchError
from tilebench_core.backend import NativeCandidate, NativeSearch
from tilebench_core.errors import NotTunable
from tilebench_core.timing import Clock, ClockError, Sample

__all__ = ["MeansClock", "ScriptedClock", "TunableBackend", "TunableOptions", "took"]

_last_us = 0.0


def took(us: float) -> None:
    """A kernel says how many microseconds its call took."""
    global _last_us
    _last_us = us


class ScriptedClock(Clock):
    """Believes what the kernels say."""

    name: ClassVar[str] = "scripted"

    def measure(
        self, launches: Sequence[Callable[[], object]], order: Sequence[int], before: Callable[[], None]
    ) -> list[Sample]:
        """See `Clock.measure`."""
        samples = []
        for entry in order:
            before()
            launches[entry]()
            samples.append(Sample(entry, _last_us, activities=1))
        return samples


class MeansClock(ScriptedClock):
    """One mean per entry, and only one measurement in each case, like a profiler that ends with its report."""

    name: ClassVar[str] = "scripted_means"
    means_only: ClassVar[bool] = True
    _asked = False

    @contextlib.contextmanager
    def case(self) -> Iterator[None]:
        """See `Clock.case`."""
        self._asked = False
        yield

    def measure(
        self, launches: Sequence[Callable[[], object]], order: Sequence[int], before: Callable[[], None]
    ) -> list[Sample]:
        """See `Clock.measure`."""
        if self._asked:
            raise ClockError("clock scripted_means: it was asked twice")
        self._asked = True
        return list({sample.entry: sample for sample in super().measure(launches, order, before)}.values())


@dataclass(frozen=True)
class TunableOptions:
    """`flavour` changes nothing but the keys of winners."""

    flavour: str = ""


class TunableBackend(Backend):
    """Runs kernels from files called impl_tunable.py with PyTorch, on the CPU. Each compilation leaves a line in a file."""

    name: ClassVar[str] = "tunable"
    Options: ClassVar[type] = TunableOptions
    clocks: ClassVar[Mapping[str, str]] = {
        "scripted": "tilebench_tunable.backend:ScriptedClock",
        "scripted_means": "tilebench_tunable.backend:MeansClock",
    }

    def probe(self, device: Device) -> str | None:
        """See `Backend.probe`."""
        return "its times are for the CPU: tilebench run device=cpu" if device.is_gpu else None

    def versions(self) -> Mapping[str, str]:
        """See `Backend.versions`."""
        return {"tunable": "1"}

    def compile(self, kernel: Kernel, inputs: Sequence[Any], config: Config) -> Compilation:
        """See `Backend.compile`."""
        with open(os.environ["TUNABLE_COMPILED"], "a") as compiled:
            compiled.write(f"{self.options.flavour} {config['act']} {config['us']}\n")
        start = time.perf_counter()
        try:
            kernel.run(*inputs, **config)
        except RuntimeError as error:
            raise LaunchError(str(error)) from error
        return Compilation(seconds=time.perf_counter() - start)

    def autotune(self, kernel: Kernel, inputs: Sequence[Any], configs: Sequence[Config]) -> NativeSearch:
        """See `Backend.autotune`: one call of each, in the reverse order, the last of the fastest wins."""
        if any(config["act"] == "two_launches" for config in configs):
            raise NotTunable("run launches 2 kernels, and this tuner times one")
        seen = {}
        for number, config in reversed(list(enumerate(configs))):
            try:
                compilation = self.compile(kernel, inputs, config)
                seen[number] = NativeCandidate(config=config, time_us=_last_us, compile_s=compilation.seconds)
            except LaunchError as error:
                seen[number] = NativeCandidate(config=config, failure=str(error))
        timed = [candidate for candidate in seen.values() if candidate.time_us is not None]
        if not timed:
            raise LaunchError("the tuner found no configuration that runs")
        winner = min(timed, key=lambda candidate: candidate.time_us)
        return NativeSearch(
            tuner="tunable's own tuner",
            measured="one call each",
            winner=winner.config,
            candidates=tuple(seen[number] for number in range(len(configs))),
        )
