"""Who is fastest at the largest case of each operator and dtype: a kernel in some DSL, or PyTorch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilebench_core.analysis.points import Contestant, Point, View, is_pytorch, valid_ratio
from tilebench_core.analysis.standings import GOOD_UTILISATION, largest, mean_of, utilisation

__all__ = ["CLOSE", "Lead", "LeadCounts", "count_leads", "leads"]

CLOSE = 1.05
"""A kernel that takes at most this times as long as the fastest PyTorch counts as no slower."""


@dataclass(frozen=True, kw_only=True)
class Lead:
    """One operator and dtype at its largest case. `params` are those that its cases differ in.

    `median_us` is of everybody who has a valid record there. `kernel` and `pytorch` are the fastest of their kind;
    `over_pytorch` is PyTorch's time over the kernel's, or None where the two may not be put in a ratio; `utilisation` is the
    kernel's share of the roofline.
    """

    operator: str
    dtype: str
    params: Mapping[str, Any]
    median_us: Mapping[Contestant, float]
    kernel: Contestant | None
    pytorch: Contestant | None
    over_pytorch: float | None
    utilisation: float | None

    @property
    def fastest(self) -> Contestant:
        """Who takes the least time of all."""
        return min(self.median_us, key=lambda who: self.median_us[who])


@dataclass(frozen=True, kw_only=True)
class LeadCounts:
    """Operators (their dtypes averaged geometrically) whose best kernel keeps up with PyTorch, or with the roofline."""

    compared: int
    close: int
    rated: int
    good: int


def leads(view: View) -> list[Lead]:
    """One Lead for every operator and dtype of a view under one condition that has a latency at its largest case."""
    values: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for point in view.points:
        for name, value in point.params.items():
            values[point.operator, point.dtype, name].add(str(value))
    found = []
    for point in largest(view.points):
        swept = {n: v for n, v in point.params.items() if len(values[point.operator, point.dtype, n]) > 1}
        found.append(_lead(point, swept or point.params))
    return sorted((lead for lead in found if lead.median_us), key=lambda lead: (lead.operator, lead.dtype))


def _lead(point: Point, params: Mapping[str, Any]) -> Lead:
    medians = {who: record.median_us for who, record in point.valid.items() if record.median_us}

    def best(of_pytorch: bool) -> Contestant | None:
        kind = [who for who in medians if is_pytorch(who.backend) == of_pytorch]
        return min(kind, key=lambda who: medians[who], default=None)

    kernel, pytorch = best(False), best(True)
    records = point.valid.get(pytorch) if pytorch else None, point.valid.get(kernel) if kernel else None
    return Lead(
        operator=point.operator, dtype=point.dtype, params=params, median_us=medians, kernel=kernel, pytorch=pytorch,
        over_pytorch=valid_ratio(*records), utilisation=utilisation(records[1]),
    )  # fmt: skip


def count_leads(found: Sequence[Lead]) -> LeadCounts:
    """How many operators there are, and how many keep up."""

    def means(pairs: Iterable[tuple[str, float | None]]) -> list[float]:
        return [value for _, value in mean_of(pairs).by_operator]

    ratios = means((lead.operator, lead.over_pytorch) for lead in found)
    shares = means((lead.operator, lead.utilisation) for lead in found)
    return LeadCounts(
        compared=len(ratios), close=sum(ratio * CLOSE >= 1 for ratio in ratios),
        rated=len(shares), good=sum(value >= GOOD_UTILISATION for value in shares),
    )  # fmt: skip
