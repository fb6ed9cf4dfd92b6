"""The `cpu` clock: wall time by `perf_counter_ns`. Short calls are batched, so that a sample is long enough to read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from tilebench_core.timing.clock import Clock, Sample

__all__ = ["CpuClock"]

_SHORTEST_SAMPLE_NS = 100_000


class CpuClock(Clock):
    """Wall time of calls on the CPU, in microseconds per call."""

    name: ClassVar[str] = "cpu"

    def __init__(self) -> None:
        self._calls: dict[Callable[[], object], int] = {}

    @contextlib.contextmanager
    def case(self) -> Iterator[None]:
        """See `Clock.case`; what was learnt of its calls is forgotten, since each call holds the tensors of its case."""
        try:
            yield
        finally:
            self._calls.clear()

    def measure(
        self, launches: Sequence[Callable[[], object]], order: Sequence[int], before: Callable[[], None]
    ) -> list[Sample]:
        """See `Clock.measure`."""
        samples = []
        for entry in order:
            before()
            launch = launches[entry]
            calls = self._calls.get(launch, 1)
            start = time.perf_counter_ns()
            for _ in range(calls):
                launch()
            elapsed = time.perf_counter_ns() - start
            if launch not in self._calls:
                self._calls[launch] = max(1, min(1000, _SHORTEST_SAMPLE_NS // max(1, elapsed)))
            samples.append(Sample(entry, elapsed / calls / 1e3, calls=calls))
        return samples
