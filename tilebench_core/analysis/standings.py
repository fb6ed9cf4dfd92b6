"""How each contestant stands: speedup over PyTorch, tuning gain, utilisation and pass rate, each with its support.

Ratios are formed per case, then the geometric mean is taken over an operator's cases (all dtypes), then over operators,
each weighing the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tilebench_core.analysis.points import Contestant, Point, View, geomean, valid_ratio
from tilebench_core.analysis.results import Peaks
from tilebench_core.outcomes import Outcome
from tilebench_core.records import Record

__all__ = [
    "BASELINE", "GOOD_UTILISATION", "Mean", "Standing", "attainable", "datasheet_utilisation", "largest", "mean_of", "pass_rate",
    "speedup",
    "standings", "tuning_gain", "utilisation",
]  # fmt: skip

BASELINE = Contestant("torch")
GOOD_UTILISATION = 0.8
SAMPLED = 0.5
"""Who was measured on less than this share of the cases is a sample: it is compared on its own cases only."""


@dataclass(frozen=True)
class Mean:
    """A geometric mean with its support: over how many cases of how many operators it was formed."""

    value: float | None = None
    cases: int = 0
    operators: int = 0
    by_operator: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One row of a summary. `common` is over the cases valid for everybody compared, the others over its own cases.

    `good_share` is the share of operators whose mean utilisation is at least 80 %; `pass_rate` is verified over
    applicable records, with `passed`, `suspicious` and `applicable` as counts.
    """

    contestant: Contestant
    speedup_common: Mean
    speedup: Mean
    tuning_gain: Mean
    utilisation: Mean
    utilisation_largest: Mean
    utilisation_datasheet: Mean
    attainable: Mean
    attainable_largest: Mean
    good_share: float | None
    good_share_largest: float | None
    pass_rate: float | None
    passed: int
    suspicious: int
    applicable: int


def mean_of(pairs: Iterable[tuple[str, float | None]]) -> Mean:
    """Geometric mean per operator, then over operators, of (operator, value) pairs; None and non-positive are left out."""
    by_operator: dict[str, list[float]] = defaultdict(list)
    for operator, value in pairs:
        if value is not None and 0 < value < float("inf"):
            by_operator[operator].append(value)
    means = tuple((operator, geomean(values) or 0.0) for operator, values in sorted(by_operator.items()))
    return Mean(geomean(v for _, v in means), sum(map(len, by_operator.values())), len(means), means)


def speedup(point: Point, who: Contestant, baseline: Contestant = BASELINE) -> float | None:
    """Baseline's latency over the contestant's, where the two may be put in a ratio."""
    return valid_ratio(point.valid.get(baseline), point.valid.get(who))


def tuning_gain(point: Point, who: Contestant) -> float | None:
    """Latency of the default configuration over that of the tuned one; None for a contestant that is not tuned."""
    if who.mode != "tuned":
        return None
    return valid_ratio(point.valid.get(Contestant(who.backend, "default", who.provider)), point.valid.get(who))


def utilisation(record: Record | None) -> float | None:
    """Roofline time over measured time, never clipped; None where the ceilings or the work are unknown."""
    return record.utilisation if record else None


def datasheet_utilisation(record: Record | None, peaks: Peaks) -> float | None:
    """Utilisation against the datasheet's ceilings, where the record's own is against measured ones."""
    if record is None or not record.median_us or peaks.datasheet is None:
        return None
    limit_us = peaks.datasheet_us(record)
    return limit_us / record.median_us if limit_us else None


def attainable(record: Record | None, peaks: Peaks) -> float | None:
    """(Roofline time + the launch floor of its backend) over measured time; None where either is unknown."""
    if record is None or not record.roofline_us or not record.median_us:
        return None
    floor = peaks.floor_us(record.backend)
    return None if floor is None else (record.roofline_us + floor) / record.median_us


def largest(points: Iterable[Point]) -> list[Point]:
    """The point with the most compulsory bytes (then flops, then the last) of each operator, dtype and condition."""
    best: dict[tuple[str, ...], tuple[tuple[float, float, int], Point]] = {}
    for point in points:
        record = next(iter(point.valid.values()))
        size = (record.bytes or 0.0, record.flops or 0.0, point.index)
        key = (point.operator, point.dtype, point.device, point.clock, point.cache)
        if key not in best or size >= best[key][0]:
            best[key] = (size, point)
    return [point for _, point in best.values()]


def pass_rate(records: Iterable[Record]) -> tuple[float | None, int, int, int]:
    """(verified / applicable, passed, suspicious, applicable) of records; the rate is None where nothing applied."""
    applicable = [record.outcome for record in records if record.outcome.is_applicable]
    passed = sum(outcome is Outcome.PASSED for outcome in applicable)
    suspicious = sum(outcome is Outcome.SUSPICIOUS for outcome in applicable)
    rate = (passed + suspicious) / len(applicable) if applicable else None
    return rate, passed, suspicious, len(applicable)


def _good(mean: Mean) -> float | None:
    """Share of operators at or above GOOD_UTILISATION."""
    return sum(v >= GOOD_UTILISATION for _, v in mean.by_operator) / mean.operators if mean.operators else None


def standings(view: View, everybody: Sequence[Contestant], peaks: Peaks) -> list[Standing]:
    """One Standing per contestant of `everybody`, for a view under one condition.

    Wherever `speedup_common` is compared between rows, it is over the same cases: those valid for all of `everybody`
    and for the baseline. Whoever was planned for a few of the cases only would leave the others next to none: it has no
    `speedup_common`. A case that was tried and failed counts as planned, so nobody leaves the comparison by failing.
    """
    at_largest = largest(view.points)
    records: dict[Contestant, list[Record]] = defaultdict(list)
    for record in view.records:
        records[view.contestant(record)].append(record)
    most = max((len(records[who]) for who in everybody), default=0)
    sampled = {who for who in everybody if len(records[who]) < SAMPLED * most}
    compared = [who for who in dict.fromkeys([*everybody, BASELINE]) if who not in sampled]
    common = [point for point in view.points if point.common(compared)]
    return [
        _standing(who, view.points, [] if who in sampled else common, at_largest, records[who], peaks)
        for who in everybody
    ]


def _standing(
    who: Contestant,
    points: Sequence[Point],
    common: Sequence[Point],
    at_largest: Sequence[Point],
    records: Sequence[Record],
    peaks: Peaks,
) -> Standing:
    def mean(over: Sequence[Point], value: Callable[[Point], float | None]) -> Mean:
        return mean_of((point.operator, value(point)) for point in over)

    rate, passed, suspicious, applicable = pass_rate(records)
    used = mean(points, lambda p: utilisation(p.valid.get(who)))
    used_largest = mean(at_largest, lambda p: utilisation(p.valid.get(who)))
    return Standing(
        contestant=who,
        speedup_common=mean(common, lambda p: speedup(p, who)),
        speedup=mean(points, lambda p: speedup(p, who)),
        tuning_gain=mean(points, lambda p: tuning_gain(p, who)),
        utilisation=used,
        utilisation_largest=used_largest,
        utilisation_datasheet=mean(points, lambda p: datasheet_utilisation(p.valid.get(who), peaks)),
        attainable=mean(points, lambda p: attainable(p.valid.get(who), peaks)),
        attainable_largest=mean(at_largest, lambda p: attainable(p.valid.get(who), peaks)),
        good_share=_good(used),
        good_share_largest=_good(used_largest),
        pass_rate=rate,
        passed=passed,
        suspicious=suspicious,
        applicable=applicable,
    )
