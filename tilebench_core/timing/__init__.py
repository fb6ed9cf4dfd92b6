"""Timing: clocks, cold caches, CUDA graphs, rounds in which the backends take turns, and statistics."""

from tilebench_core.timing.clock import Clock, ClockError, Sample, clock_named
from tilebench_core.timing.rounds import Entry, Timing, time_entries
from tilebench_core.timing.settings import PROTOCOLS, TimingSettings
from tilebench_core.timing.statistics import Statistics, summarise

__all__ = [
    "PROTOCOLS",
    "Clock",
    "ClockError",
    "Entry",
    "Sample",
    "Statistics",
    "Timing",
    "TimingSettings",
    "clock_named",
    "summarise",
    "time_entries",
]
