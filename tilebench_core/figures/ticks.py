"""Where axes carry labels, and what the labels say."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["human", "log_ticks", "spread", "subs", "tick_label"]


def human(value: float) -> str:
    """A number as people write it on an axis: 4096, 16k, 1.5M, 0.02."""
    for limit, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            divisor = 1e3 if suffix == "k" else limit
            return f"{value / divisor:.3g}{suffix}"
    return f"{value:.4g}"


def tick_label(value: float, label: str = "") -> str:
    """Like `human`; a swept parameter that is a multiple of 1,024 is written in Ki and Mi."""
    if value >= 8192 and value % 1024 == 0 and "byte" not in label:
        return f"{value / 2**20:g}Mi" if value % 2**20 == 0 else f"{value / 2**10:g}Ki"
    return human(value)


def subs(spread: float) -> tuple[float, ...]:
    """Which multiples of each power of ten carry a label, for an axis from a to a·spread."""
    if spread < 4:
        return (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
    if spread < 15:
        return (1.0, 2.0, 3.0, 5.0, 7.0)
    return (1.0, 2.0, 5.0) if spread < 300 else (1.0,)


def spread(xs: Sequence[float], most: int) -> list[float]:
    """At most about `most` of the values that keep a distance on a logarithmic axis, so that labels do not touch."""
    if len(xs) < 2 or xs[0] <= 0:
        return list(xs)
    gap = math.log(xs[-1] / xs[0]) / most
    kept = [xs[-1]]
    for x in reversed(xs[:-1]):
        if math.log(kept[-1] / x) >= gap:
            kept.append(x)
    return kept


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high` on a logarithmic axis."""
    factors = subs(high / low)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    step = max(1, (last - first) // 6)
    ticks = [factor * 10.0**power for power in range(first, last + 1, step) for factor in factors]
    return [tick for tick in ticks if low <= tick <= high]
