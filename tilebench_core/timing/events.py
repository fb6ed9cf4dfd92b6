"""The `events` clock: CUDA events around each launch, the stream held until everything is queued.

It reads about two microseconds more than the device was busy, the cost of the events themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tilebench_core.timing.clock import Clock, Sample

__all__ = ["EventClock"]

_CYCLES_PER_LAUNCH = 60_000  # about 30 µs at 2 GHz: more than the host takes to queue one launch


class EventClock(Clock):
    """Elapsed time between two events on the current stream."""

    name: ClassVar[str] = "events"

    def measure(
        self, launches: Sequence[Callable[[], object]], order: Sequence[int], before: Callable[[], None]
    ) -> list[Sample]:
        """See `Clock.measure`. Long orders are issued in parts, since the queue of a stream is finite."""
        samples: list[Sample] = []
        for start in range(0, len(order), 100):
            samples += self._part(launches, order[start : start + 100], before)
        return samples

    @staticmethod
    def _part(
        launches: Sequence[Callable[[], object]], order: Sequence[int], before: Callable[[], None]
    ) -> list[Sample]:
        import torch

        events: Any = torch.cuda  # PyTorch types neither Event nor _sleep
        starts = [events.Event(enable_timing=True) for _ in order]
        ends = [events.Event(enable_timing=True) for _ in order]
        torch.cuda.synchronize()
        events._sleep(_CYCLES_PER_LAUNCH * len(order))
        for entry, start, end in zip(order, starts, ends, strict=True):
            before()
            start.record()
            launches[entry]()
            end.record()
        torch.cuda.synchronize()
        return [
            Sample(entry, start.elapsed_time(end) * 1e3) for entry, start, end in zip(order, starts, ends, strict=True)
        ]
