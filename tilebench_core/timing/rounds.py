"""Timing rounds: the entries of one case take turns, forward then backward, so that clocks and heat hit all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tilebench_core.timing.clock import Clock, Sample
from tilebench_core.timing.settings import TimingSettings
from tilebench_core.timing.statistics import median_interval

__all__ = ["Entry", "Timing", "round_order", "time_entries"]

_ROUNDS_PER_PART = 10


@dataclass(frozen=True)
class Entry:
    """Something to time: `launch()` is what is timed (a graph's replay or a call), `warm()` one unmeasured call."""

    name: str
    launch: Callable[[], object]
    warm: Callable[[], object]


@dataclass
class Timing:
    """All samples of one entry, and the named reason why no more were taken."""

    samples: list[Sample] = field(default_factory=list)
    stop_reason: str = ""


def round_order(entries: Sequence[int], rounds: int, first_round: int = 0) -> list[int]:
    """The order of launches over `rounds` rounds: A B C, C B A, A B C, …"""
    order: list[int] = []
    for number in range(first_round, first_round + rounds):
        order += entries if number % 2 == 0 else list(reversed(entries))
    return order


def time_entries(
    entries: Sequence[Entry], settings: TimingSettings, clock: Clock, before: Callable[[], None]
) -> list[Timing]:
    """Time `entries` in turns under `settings`; return a Timing for each.

    `before()` runs in front of each launch, outside its window (it evicts the cache, or does nothing).
    """
    for entry in entries:
        for _ in range(settings.warmup):
            before()
            entry.warm()
    timings = [Timing() for _ in entries]
    active = list(range(len(entries)))
    started = time.monotonic()
    rounds_done = 0
    whole = settings.protocol == "fixed" or clock.means_only
    while active:
        rounds = settings.repeat if whole else min(_ROUNDS_PER_PART, settings.repeat - rounds_done)
        launches = [entry.launch for entry in entries]
        for sample in clock.measure(launches, round_order(active, rounds, rounds_done), before):
            timings[sample.entry].samples.append(sample)
        rounds_done += rounds
        elapsed = time.monotonic() - started
        for index in list(active):
            reason = _stop_reason(timings[index], settings, rounds_done, elapsed, whole)
            if reason:
                timings[index].stop_reason = reason
                active.remove(index)
    return timings


def _stop_reason(timing: Timing, settings: TimingSettings, rounds: int, elapsed_s: float, whole: bool) -> str:
    if whole or rounds >= settings.repeat:
        return f"{rounds} samples"
    if rounds < settings.min_samples:
        return ""
    values = [sample.busy_us for sample in timing.samples]
    low, high = median_interval(values)
    middle = sorted(values)[len(values) // 2]
    if middle > 0 and (high - low) / 2 <= settings.precision * middle:
        return f"median within {settings.precision:.2%}"
    return f"time limit of {settings.time_limit_s} s" if elapsed_s >= settings.time_limit_s else ""
