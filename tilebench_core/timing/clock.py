"""What a clock is: it issues launches in a given order and says how long each kept the device busy."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import ClassVar

from tilebench_core.errors import RequestError, TilebenchError, nearest

__all__ = ["CLOCKS", "Clock", "ClockError", "Sample", "clock_named"]


class ClockError(TilebenchError):
    """The configured clock cannot be used here; the reason says what stands in its way. Nothing replaces it."""


@dataclass(frozen=True)
class Sample:
    """One timed launch of one entry.

    `busy_us` is the union of its kernels, copies and memsets; `span_us` first start to last end; `activities` their
    number. A clock that cannot see inside a launch leaves span and activities None.
    """

    entry: int
    busy_us: float
    span_us: float | None = None
    activities: int | None = None
    calls: int = 1


class Clock(ABC):
    """Opened once per worker, before any CUDA graph is captured; `case` surrounds everything that belongs to one case."""

    name: ClassVar[str]
    means_only: ClassVar[bool] = False
    """True if it yields one mean per entry instead of a sample per launch."""

    device_s: float | None = None
    """Seconds the device was busy, for whatever reason, since somebody set this to 0; None if the clock cannot tell."""

    profile_dir: Path | None = None
    """Where a clock that writes profiles keeps them; None throws them away."""

    def open(self) -> None:
        """Attach to the device. Raises ClockError with the reason, e.g. another profiler being attached."""

    def close(self) -> None:
        """Detach from the device."""

    @contextlib.contextmanager
    def case(self) -> Iterator[None]:
        """Surround the captures and launches of one case."""
        yield

    @abstractmethod
    def measure(
        self, launches: Sequence[Callable[[], object]], order: Sequence[int], before: Callable[[], None]
    ) -> list[Sample]:
        """Issue `launches[i]` for each i of `order`, with `before()` in front of each and outside its window.

        Returns one Sample per launch in this order (or, with `means_only`, one per distinct entry).
        """


CLOCKS: Mapping[str, str] = {
    "cupti": "tilebench_core.timing.cupti:CuptiClock",
    "events": "tilebench_core.timing.events:EventClock",
    "cpu": "tilebench_core.timing.cpu:CpuClock",
}


def clock_named(name: str, offered: Mapping[str, str]) -> Clock:
    """Return the clock called `name`, one of ours or of those that installed backends offer (name → module:class)."""
    known = {**CLOCKS, **offered}
    if name not in known:
        raise RequestError(f"unknown clock {name!r}; expected one of {', '.join(known)}.{nearest(name, known)}")
    module, _, attribute = known[name].partition(":")
    clock: Clock = getattr(import_module(module), attribute)()
    return clock
