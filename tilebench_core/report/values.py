"""The values behind each static figure, as rows with a heading: what the figure draws and its CSV holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tilebench_core.analysis.points import Contestant, is_pytorch
from tilebench_core.analysis.standings import largest, mean_of, speedup, tuning_gain
from tilebench_core.report.content import Group

__all__ = ["VALUES", "Rows"]

Rows: TypeAlias = Sequence[Sequence[Any]]


def _rivals(group: Group) -> list[Contestant]:
    """One contestant per backend that is not PyTorch's own, those with the most operators first."""
    rivals = [who for who in group.best_of_backend if not is_pytorch(who.backend)]
    support = {who: sum(row.speedups[who].operators for row in group.operators) for who in rivals}
    return sorted(rivals, key=lambda who: (-support[who], who))


def _speedup_scatter(group: Group) -> Rows:
    """Two backends, operator by operator, over the cases that are valid for both and for PyTorch."""
    head = ["operator", "category", "first", "second", "first_speedup", "second_speedup", "cases"]
    rivals = _rivals(group)[:2]
    if len(rivals) < 2:
        return [head]
    rows: list[list[Any]] = [head]
    for row in group.operators:
        points = group.view.by_operator[row.operator].points
        pairs = [(speedup(point, rivals[0]), speedup(point, rivals[1])) for point in points]
        both = [(a, b) for a, b in pairs if a and b]
        if both:
            first, second = (mean_of((row.operator, pair[i]) for pair in both).value for i in (0, 1))
            names = [rivals[0].label, rivals[1].label]
            rows.append([row.operator, row.category, *names, first, second, len(both)])
    return rows


def _tuning_arrows(group: Group) -> Rows:
    rows: list[list[Any]] = [
        ["operator", "dtype", "backend", "intensity", "default_tflops", "tuned_tflops", "roof_tflops"]
    ]
    for point in largest(group.view.points):
        for who, tuned in point.valid.items():
            default = point.valid.get(Contestant(who.backend, "default", who.provider))
            if who.mode == "tuned" and default and default.tflops and tuned.tflops and tuning_gain(point, who):
                intensity, roof = _intensity(tuned)
                names = [point.operator, point.dtype, who.label]
                rows.append([*names, intensity, default.tflops, tuned.tflops, roof])
    return rows


def _intensity(record: Any) -> tuple[float, float | None]:
    """(FLOP/byte, ceiling in TFLOP/s)"""
    roof = record.flops / record.roofline_us / 1e6 if record.roofline_us else None
    return record.flops / record.bytes, roof


def _latency_bars(group: Group) -> Rows:
    """In the dtype that most operators share: a bar for each of them in every dtype would not fit a page."""
    rows: list[list[Any]] = [["operator", "dtype", "backend", "median_us"]]
    points = largest(group.view.points)
    dtypes = Counter(point.dtype for point in points)
    common = max(sorted(dtypes), key=dtypes.__getitem__, default="")
    for point in points:
        if point.dtype != common:
            continue
        for who in group.best_of_backend:
            if who in point.valid:
                rows.append([point.operator, point.dtype, who.label, point.valid[who].median_us])
    return rows


def _speedup_boxes(group: Group) -> Rows:
    rows: list[list[Any]] = [["operator", "category", "dtype", "case", "backend", "speedup"]]
    for point in group.view.points:
        for who in group.best_of_backend:
            value = speedup(point, who) if who.backend != "torch" else None
            if value:
                rows.append([point.operator, point.category, point.dtype, point.index, who.label, value])
    return rows


def _tuning_gain_boxes(group: Group) -> Rows:
    rows: list[list[Any]] = [["operator", "category", "dtype", "case", "backend", "gain"]]
    for point in group.view.points:
        for who in group.contestants:
            gain = tuning_gain(point, who)
            if gain:
                rows.append([point.operator, point.category, point.dtype, point.index, who.label, gain])
    return rows


def _roofline(group: Group) -> Rows:
    rows: list[list[Any]] = [["operator", "dtype", "backend", "intensity", "tflops", "roof_tflops"]]
    for point in largest(group.view.points):
        for who in group.best_of_backend:
            record = point.valid.get(who)
            if record and record.tflops and record.bytes:
                rows.append([point.operator, point.dtype, who.label, _intensity(record)[0], record.tflops])
                rows[-1].append(_intensity(record)[1])
    return rows


def _heat_map(group: Group) -> Rows:
    rows: list[list[Any]] = [["operator", "category", "backend", "utilisation", "cases"]]
    for row in group.operators:
        for who in group.contestants:
            used = row.utilisations[who]
            if used.value:
                rows.append([row.operator, row.category, who.label, used.value, used.cases])
    return rows


VALUES: dict[str, Callable[[Group], Rows]] = {
    "speedup_scatter": _speedup_scatter,
    "tuning_arrows": _tuning_arrows,
    "latency_bars": _latency_bars,
    "speedup_boxes": _speedup_boxes,
    "roofline": _roofline,
    "tuning_gain_boxes": _tuning_gain_boxes,
    "utilisation_heat_map": _heat_map,
}
