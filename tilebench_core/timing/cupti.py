"""The `cupti` clock: NVIDIA's activity records, one sample per launch, also when graphs are replayed in turns.

Each launch carries an external correlation id. CUPTI relates it to the API call, and the API call to every kernel, copy
and memset that came of it, so that launches of several backends may be interleaved freely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from tilebench_core.timing.activities import ActivityBuffers
from tilebench_core.timing.clock import Clock, ClockError, Sample

__all__ = ["CuptiClock", "busy_and_span"]


def busy_and_span(intervals: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the length of the union of [start, end) intervals, and the distance from first start to last end."""
    ordered = sorted(intervals)
    busy, reach = 0, ordered[0][0]
    for start, end in ordered:
        busy += max(0, end - max(start, reach))
        reach = max(reach, end)
    return busy, reach - ordered[0][0]


class CuptiClock(Clock):
    """Device time by NVIDIA's cupti-python. Only one CUPTI client can be attached to a process at a time."""

    name: ClassVar[str] = "cupti"

    def __init__(self) -> None:
        self.device_s = 0.0
        self._cupti: Any = None
        self._buffers: ActivityBuffers | None = None
        self._next_id = 1

    def _work(self) -> list[Any]:
        kind = self._cupti.ActivityKind
        return [kind.CONCURRENT_KERNEL, kind.MEMCPY, kind.MEMSET]

    def _calls(self) -> list[Any]:
        """What relates a launch to its work: correlation records are written only for API calls that are recorded."""
        kind = self._cupti.ActivityKind
        return [kind.EXTERNAL_CORRELATION, kind.RUNTIME, kind.DRIVER]

    def open(self) -> None:
        """See `Clock.open`."""
        try:
            from cupti import cupti
        except ImportError as error:
            raise ClockError(f"clock cupti: {error}; install it with: pip install 'tilebench[gpu]'") from error
        self._cupti = cupti
        try:
            cupti.get_timestamp()  # loads the library, whose callbacks have to be there before anything is recorded
            self._buffers = ActivityBuffers(cupti)
            for kind in self._work():
                cupti.activity_enable(kind)
        except Exception as error:  # cupti-python raises its own error class for every status; the clock fails by name
            raise ClockError(
                f"clock cupti: {error}; another profiler may be attached, or counters need permission"
                " (`tilebench doctor` says more); choose another with timing.clock=events"
            ) from error

    def close(self) -> None:
        """See `Clock.close`."""
        if self._cupti is not None:
            for kind in self._work():
                self._cupti.activity_disable(kind)

    def measure(
        self, launches: Sequence[Callable[[], object]], order: Sequence[int], before: Callable[[], None]
    ) -> list[Sample]:
        """See `Clock.measure`."""
        import torch

        assert self._buffers is not None
        first = self._next_id
        custom = self._cupti.ExternalCorrelationKind.CUSTOM0
        for kind in self._calls():
            self._cupti.activity_enable(kind)
        try:
            for entry in order:
                before()
                self._cupti.activity_push_external_correlation_id(custom, self._next_id)
                try:
                    launches[entry]()
                finally:
                    self._cupti.activity_pop_external_correlation_id(custom)
                    self._next_id += 1
            torch.cuda.synchronize()
        finally:
            # Recorded all the time, the calls of inputs, references and verification would outnumber the timed ones.
            for kind in self._calls():
                self._cupti.activity_disable(kind)
        self._cupti.activity_flush_all(1)  # also brings whatever ran since the last time, which no external id claims
        all_intervals, external = self._buffers.take()
        by_launch: dict[int, list[tuple[int, int]]] = {}
        busy_ns = 0
        for correlation, intervals in all_intervals.items():
            busy_ns += sum(end - start for start, end in intervals)
            launch = external.get(correlation)
            if launch is not None:
                by_launch.setdefault(launch, []).extend(intervals)
        self.device_s = (self.device_s or 0.0) + busy_ns / 1e9
        return [self._sample(entry, by_launch.get(first + index, [])) for index, entry in enumerate(order)]

    @staticmethod
    def _sample(entry: int, intervals: list[tuple[int, int]]) -> Sample:
        if not intervals:
            return Sample(entry, 0.0, 0.0, 0)
        busy, span = busy_and_span(intervals)
        return Sample(entry, busy / 1e3, span / 1e3, len(intervals))
