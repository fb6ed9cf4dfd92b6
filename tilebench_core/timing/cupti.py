"""The `cupti` clock: NVIDIA's activity records, one sample per launch, also when graphs are replayed in turns.

Each launch carries an external correlation id. CUPTI relates it to the API call, and the API call to every kernel, copy
and memset that came of it, so that launches of several backends may be interleaved freely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from tilebench_core.timing.clock import Clock, ClockError, Sample

__all__ = ["CuptiClock", "busy_and_span"]

_BUFFER_BYTES = 8 * 1024 * 1024


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
        self._work: frozenset[int] = frozenset()
        self._intervals: dict[int, list[tuple[int, int]]] = {}
        self._external: dict[int, int] = {}
        self._next_id = 1

    def _kinds(self) -> list[Any]:
        kind = self._cupti.ActivityKind
        # External correlation records are only written for API calls that are recorded themselves.
        return [
            kind.CONCURRENT_KERNEL,
            kind.MEMCPY,
            kind.MEMSET,
            kind.EXTERNAL_CORRELATION,
            kind.RUNTIME,
            kind.DRIVER,
        ]

    def open(self) -> None:
        """See `Clock.open`."""
        try:
            from cupti import cupti
        except ImportError as error:
            raise ClockError(f"clock cupti: {error}; install it with: pip install 'tilebench[gpu]'") from error
        self._cupti = cupti
        kinds = cupti.ActivityKind
        self._work = frozenset(int(kind) for kind in (kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET))
        try:
            cupti.activity_register_callbacks(lambda: (_BUFFER_BYTES, 0), self._completed)
            for kind in self._kinds():
                cupti.activity_enable(kind)
        except Exception as error:  # cupti-python raises its own error class for every status; the clock fails by name
            raise ClockError(
                f"clock cupti: {error}; another profiler may be attached, or counters need permission"
                " (`tilebench doctor` says more); choose another with timing.clock=events"
            ) from error

    def close(self) -> None:
        """See `Clock.close`."""
        if self._cupti is not None:
            for kind in self._kinds():
                self._cupti.activity_disable(kind)

    def _completed(self, activities: Sequence[Any]) -> None:
        external = int(self._cupti.ActivityKind.EXTERNAL_CORRELATION)
        for activity in activities:
            kind = int(activity.kind)
            if kind in self._work:
                self._intervals.setdefault(activity.correlation_id, []).append((activity.start, activity.end))
            elif kind == external:
                self._external[activity.correlation_id] = activity.external_id

    def measure(
        self, launches: Sequence[Callable[[], object]], order: Sequence[int], before: Callable[[], None]
    ) -> list[Sample]:
        """See `Clock.measure`."""
        import torch

        first = self._next_id
        custom = self._cupti.ExternalCorrelationKind.CUSTOM0
        for entry in order:
            before()
            self._cupti.activity_push_external_correlation_id(custom, self._next_id)
            try:
                launches[entry]()
            finally:
                self._cupti.activity_pop_external_correlation_id(custom)
                self._next_id += 1
        torch.cuda.synchronize()
        self._cupti.activity_flush_all(1)  # also brings whatever ran since the last time, which no external id claims
        by_launch: dict[int, list[tuple[int, int]]] = {}
        for correlation, intervals in self._intervals.items():
            launch = self._external.get(correlation)
            if launch is not None:
                by_launch.setdefault(launch, []).extend(intervals)
        self.device_s = (self.device_s or 0.0) + sum(
            end - start for intervals in self._intervals.values() for start, end in intervals
        ) / 1e9
        self._intervals.clear()
        self._external.clear()
        return [self._sample(entry, by_launch.get(first + index, [])) for index, entry in enumerate(order)]

    @staticmethod
    def _sample(entry: int, intervals: list[tuple[int, int]]) -> Sample:
        if not intervals:
            return Sample(entry, 0.0, 0.0, 0)
        busy, span = busy_and_span(intervals)
        return Sample(entry, busy / 1e3, span / 1e3, len(intervals))
