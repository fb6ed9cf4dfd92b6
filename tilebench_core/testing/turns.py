"""Variants of a kernel on one case: each is verified, then all are timed in turns within one process."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from tilebench_core.backend import Backend
from tilebench_core.case import Case
from tilebench_core.kernel import Config, Kernel
from tilebench_core.packs import Operator
from tilebench_core.registry import installed
from tilebench_core.testing.kernel_check import reference_of
from tilebench_core.timing import Clock, Entry, TimingSettings, time_entries

__all__ = ["Variant", "WrongResult", "medians_in_turns"]


class WrongResult(RuntimeError):
    """A variant computes something else than the operator; the message names it and says where."""


class Variant(NamedTuple):
    """A kernel with a backend and a configuration; `name` is what messages call it."""

    name: str
    backend: Backend
    kernel: Kernel
    config: Config


def medians_in_turns(
    operator: Operator, case: Case, precision: str, variants: Sequence[Variant], device: str, clock: Clock, repeat: int
) -> list[float]:
    """Median latencies of the variants in µs, of `repeat` launches each, under a clock that is open.

    Inputs, reference and rounds are a campaign's; on a GPU (`device` as PyTorch names it, else "cpu") graphs are replayed with a cold
    cache. Raises WrongResult for a variant whose result is wrong, and what `Backend.compile` raises.
    """
    from tilebench_core.verify import precision_state, prepare_case, verify_launch

    with precision_state("fp32"):
        prepared = prepare_case(
            case,
            operator.load(),
            reference_of(installed(), operator),
            partial(operator.config.tolerance, case),
            device,
            0,
        )
    with precision_state(precision), contextlib.ExitStack() as stack:
        entries = []
        for variant in variants:
            stack.enter_context(variant.backend.session())
            variant.backend.compile(variant.kernel, prepared.inputs, variant.config)
            launch = partial(variant.backend.launch, variant.kernel, prepared.inputs, variant.config)
            verdict = verify_launch(prepared, launch)
            if not verdict.passed:
                raise WrongResult(f"{variant.name} is wrong: {verdict.message}")
            call = _timed(launch, device)
            entries.append(Entry(variant.name, call, call))
        prepared.refill(0)
        with clock.case():
            settings = TimingSettings(protocol="fixed", repeat=repeat)
            timings = time_entries(entries, settings, clock, _evicting(device))
    return [statistics.median(sample.busy_us for sample in timing.samples) for timing in timings]


def _timed(launch: Callable[[], object], device: str) -> Callable[[], object]:
    """What is timed, and what warms up: the replay of a graph on a GPU, as campaigns do."""
    if device == "cpu":
        return launch
    from tilebench_core.timing.gpu import capture

    return capture(launch).replay


def _evicting(device: str) -> Callable[[], None]:
    if device == "cpu":
        return lambda: None
    import torch

    from tilebench_core.timing.gpu import CacheFlush

    return CacheFlush(torch.cuda.get_device_properties(0).L2_cache_size)
