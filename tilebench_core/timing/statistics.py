"""Statistics of one entry's samples. Outliers are marked, never deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Statistics", "median_interval", "summarise"]


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Times in microseconds. `iqr_rel` is the interquartile range over the median; `outliers` are sample numbers."""

    median_us: float
    mean_us: float
    p10_us: float
    p90_us: float
    min_us: float
    iqr_rel: float
    outliers: tuple[int, ...]
    bimodal: bool


def summarise(samples_us: Sequence[float]) -> Statistics:
    """Summarise at least one sample.

    An outlier lies more than three interquartile ranges outside the quartiles (Tukey's outer fence, with at least 2 %
    of the median as range). Bimodal: split where it separates best, both groups hold a tenth of the samples and their
    means are apart by more than 2 √2 of their pooled deviation (Ashman's D > 2) and by more than 5 % of the median.
    """
    values = np.asarray(samples_us, dtype=np.float64)
    p10, q1, median, q3, p90 = np.percentile(values, [10, 25, 50, 75, 90])
    fence = 3 * max(q3 - q1, 0.02 * median)
    outliers = np.flatnonzero((values < q1 - fence) | (values > q3 + fence))
    return Statistics(
        median_us=float(median),
        mean_us=float(values.mean()),
        p10_us=float(p10),
        p90_us=float(p90),
        min_us=float(values.min()),
        iqr_rel=float((q3 - q1) / median) if median else 0.0,
        outliers=tuple(int(index) for index in outliers),
        bimodal=_is_bimodal(np.sort(values), float(median)),
    )


def _is_bimodal(ordered: np.ndarray, median: float) -> bool:
    count = len(ordered)
    smallest = max(2, count // 10)
    if count < 10:
        return False
    for split in range(smallest, count - smallest + 1):
        low, high = ordered[:split], ordered[split:]
        distance = high.mean() - low.mean()
        pooled = np.sqrt(low.var() + high.var())
        if distance > 0.05 * median and distance > 2 * np.sqrt(2) * pooled and high[0] - low[-1] > 0.4 * distance:
            return True
    return False


def median_interval(samples_us: Sequence[float]) -> tuple[float, float]:
    """The distribution-free 95 % interval of the median, from order statistics (Conover 1999, section 3.2)."""
    ordered = np.sort(np.asarray(samples_us, dtype=np.float64))
    count = len(ordered)
    half = 0.98 * np.sqrt(count)  # 1.96 · √(n · ½ · ½)
    low = max(0, int(np.floor(count / 2 - half)))
    high = min(count - 1, int(np.ceil(count / 2 + half)))
    return float(ordered[low]), float(ordered[high])
