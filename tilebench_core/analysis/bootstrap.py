"""Intervals of ratios of medians, by resampling the timed launches of both sides."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from tilebench_core.analysis.points import case_key
from tilebench_core.records import Record

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Resampled", "interval", "log_ratios", "mean_log"]

Resampled: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.float64]]"


def log_ratios(old: Record, new: Record, resamples: int) -> Resampled:
    """Bootstrapped logarithms of (median of `new` / median of `old`)."""
    import numpy as np

    ratios: Resampled = np.log(_medians(new, resamples, "new")) - np.log(_medians(old, resamples, "old"))
    return ratios


def mean_log(logs: Sequence[Resampled]) -> Resampled:
    """The mean over cases, or over series, resample by resample."""
    import numpy as np

    mean: Resampled = np.mean(np.stack(list(logs)), axis=0)
    return mean


def interval(logs: Resampled) -> tuple[float, float]:
    """The central 95 % of the ratios."""
    import numpy as np

    low, high = np.quantile(logs, [0.025, 0.975])
    return float(np.exp(low)), float(np.exp(high))


def _medians(record: Record, resamples: int, side: str) -> Resampled:
    """Medians of bootstrap samples, drawn directly and reproducibly.

    The k-th smallest of n values resampled from n is the value at the rank of the k-th smallest of n uniform numbers,
    which follows Beta(k, n + 1 - k) (David and Nagaraja, Order Statistics, 2.3). A record without samples has no spread.
    """
    import numpy as np

    samples = np.sort(np.asarray(record.samples_us or (record.median_us,), dtype=float))
    count = len(samples)
    middle = (count + 1) // 2
    random = np.random.default_rng(zlib.crc32(f"{record.series} {case_key(record)} {side}".encode()))
    lower = random.beta(middle, count + 1 - middle, resamples)
    upper = lower if count % 2 else lower + (1 - lower) * random.beta(1, count - middle, resamples)
    low, high = (samples[np.minimum((u * count).astype(int), count - 1)] for u in (lower, upper))
    medians: Resampled = (low + high) / 2
    return medians
