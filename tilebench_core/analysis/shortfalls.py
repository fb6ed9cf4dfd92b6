"""Where a DSL stays far below what the device and its launch floor allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilebench_core.analysis.points import Contestant, Point, View, geomean, is_pytorch
from tilebench_core.analysis.results import Peaks
from tilebench_core.analysis.standings import attainable, largest, speedup, utilisation

__all__ = ["HALF", "Shortfall", "shortfalls"]

HALF = 0.5


@dataclass(frozen=True, kw_only=True)
class Shortfall:
    """One operator and dtype of one contestant; geometric means over its cases, and the share at its largest case."""

    operator: str
    dtype: str
    contestant: Contestant
    attainable: float
    attainable_largest: float | None
    utilisation: float | None
    speedup: float | None


def shortfalls(view: View, contestants: Sequence[Contestant], peaks: Peaks) -> list[Shortfall]:
    """What stays below half of the attainable over its grid, the lowest first; PyTorch's own backends are left out."""
    groups: dict[tuple[str, str], list[Point]] = {}
    for point in view.points:
        groups.setdefault((point.operator, point.dtype), []).append(point)
    found = []
    for (operator, dtype), points in groups.items():
        for who in contestants:
            shares = [share for point in points if (share := attainable(point.valid.get(who), peaks))]
            mean = geomean(shares)
            if is_pytorch(who.backend) or mean is None or mean >= HALF:
                continue
            found.append(
                Shortfall(
                    operator=operator,
                    dtype=dtype,
                    contestant=who,
                    attainable=mean,
                    attainable_largest=attainable(largest(points)[0].valid.get(who), peaks),
                    utilisation=geomean(v for p in points if (v := utilisation(p.valid.get(who)))),
                    speedup=geomean(v for p in points if (v := speedup(p, who))),
                )
            )
    return sorted(found, key=lambda row: row.attainable)
