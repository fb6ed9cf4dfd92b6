"""What the figures of an operator show, as values: the same for PNG files and for the report's page."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilebench_core.analysis.points import Contestant, Point, View, geomean
from tilebench_core.analysis.results import Peaks
from tilebench_core.analysis.standings import BASELINE, speedup
from tilebench_core.records import Record

__all__ = ["FIGURES", "Figure", "Line", "figures_of"]

# Name → (title, unit, logarithmic). The names are those of `metrics.plots` in an operator's config.yaml.
FIGURES = {
    "latency": ("Latency", "µs", True),
    "speedup": ("Speedup over PyTorch", "×", True),
    "bandwidth": ("Bandwidth", "GB/s", True),
    "bandwidth_share": ("Share of peak bandwidth", "%", False),
    "tflops": ("Arithmetic", "TFLOP/s", True),
    "roofline": ("Roofline", "TFLOP/s", True),
}


@dataclass(frozen=True)
class Line:
    """One contestant's points, ordered by x; where points share an x, y is their geometric mean (not in a roofline)."""

    contestant: Contestant
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One chart. `reference` is a horizontal line (a ratio of 1, a share of 100 %); `roof` a polyline (x, y)."""

    name: str
    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_x: bool
    log_y: bool
    reference: float | None = None
    roof: tuple[tuple[float, float], ...] = ()


def _x_axis(points: Sequence[Point]) -> tuple[str, Callable[[Point], float | None]]:
    """The swept parameter where there is only one, else the compulsory bytes, else the case's index."""
    numbers: dict[str, set[float]] = defaultdict(set)
    for point in points:
        for name, value in point.params.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                numbers[name].add(value)
    swept = [name for name, values in numbers.items() if len(values) > 1]
    if swept and all(p.params.get(swept[0]) is not None for p in points):
        one = len(swept) == 1 or all(len({p.params.get(name) for name in swept}) == 1 for p in points)
        if one and min(numbers[swept[0]]) > 0:
            return " = ".join(swept), lambda p: float(p.params[swept[0]])
    if all(_work(p, "bytes") for p in points) and len({_work(p, "bytes") for p in points}) > 1:
        return "compulsory bytes", lambda p: _work(p, "bytes")
    return "case", lambda p: float(p.index)


def _work(point: Point, name: str) -> float | None:
    value = getattr(next(iter(point.valid.values())), name)
    return float(value) if value else None


def _line(who: Contestant, pairs: Sequence[tuple[float | None, float | None]], scattered: bool) -> Line | None:
    grouped: dict[float, list[float]] = defaultdict(list)
    for x, y in pairs:
        if x is not None and y is not None and 0 < y < math.inf:
            grouped[x].append(y)
    if not grouped:
        return None
    if scattered:
        points = sorted((x, y) for x, ys in grouped.items() for y in ys)
        return Line(who, tuple(x for x, _ in points), tuple(y for _, y in points))
    xs = tuple(sorted(grouped))
    return Line(who, xs, tuple(geomean(grouped[x]) or 0.0 for x in xs))


def _lines(
    points: Sequence[Point],
    contestants: Sequence[Contestant],
    x: Callable[[Point], float | None],
    y: Callable[[Point, Contestant, Record], float | None],
    scattered: bool = False,
) -> tuple[Line, ...]:
    lines = []
    for who in contestants:
        mine = [(point, point.valid[who]) for point in points if who in point.valid]
        line = _line(who, [(x(point), y(point, who, record)) for point, record in mine], scattered)
        if line:
            lines.append(line)
    return tuple(lines)


def _roof(points: Sequence[Point]) -> tuple[tuple[float, float], ...]:
    """The ceiling (FLOP/byte, TFLOP/s) over the cases' intensities, as their roofline times imply it."""
    roof = {}
    for point in points:
        for record in point.valid.values():
            if record.roofline_us and record.flops and record.bytes:
                roof[record.flops / record.bytes] = record.flops / record.roofline_us / 1e6
    if not roof:
        return ()
    low, high = min(roof), max(roof)
    slope = max(y / x for x, y in roof.items())  # TFLOP/s per FLOP/byte: the bandwidth that the ceilings allow
    peak = max(roof.values())
    ridge = peak / slope
    xs = sorted({low / 2, low, high, high * 2} | ({ridge} if low < ridge < high else set()))
    if high > ridge * 1.001 or low * 1.001 < ridge:  # both sides are seen only if the data lie on both
        return tuple((x, min(peak, slope * x)) for x in xs)
    return tuple((x, slope * x) for x in xs)


def figures_of(view: View, contestants: Sequence[Contestant], peaks: Peaks) -> list[Figure]:
    """The figures of a view of one operator, dtype and condition: only those whose data exist."""
    points = view.points
    if not points:
        return []
    x_label, x = _x_axis(points)
    values = [x(point) for point in points]
    log_x = x_label != "case" and all(value and value > 0 for value in values)
    peak = peaks.bandwidth_gbps
    measures: dict[str, Callable[[Point, Contestant, Record], float | None]] = {
        "latency": lambda p, who, r: r.median_us,
        "speedup": lambda p, who, r: speedup(p, who),
        "bandwidth": lambda p, who, r: r.gbps,
        "bandwidth_share": lambda p, who, r: r.gbps / peak * 100 if r.gbps and peak else None,
        "tflops": lambda p, who, r: r.tflops,
    }
    figures = []
    for name, y in measures.items():
        lines = _lines(points, contestants, x, y)
        if name == "speedup" and all(line.contestant == BASELINE for line in lines):
            continue
        if lines:
            title, unit, log_y = FIGURES[name]
            reference = {"speedup": 1.0, "bandwidth_share": 100.0}.get(name)
            figures.append(
                Figure(
                    name=name,
                    title=title,
                    x_label=x_label,
                    y_label=unit,
                    lines=lines,
                    log_x=log_x,
                    log_y=log_y,
                    reference=reference,
                )
            )
    roof = _roof(points)
    lines = _lines(points, contestants, _intensity, lambda p, who, r: r.tflops, True) if roof else ()
    if lines:
        title, unit, _ = FIGURES["roofline"]
        figures.append(
            Figure(
                name="roofline",
                title=title,
                x_label="FLOP/byte",
                y_label=unit,
                lines=lines,
                log_x=True,
                log_y=True,
                roof=roof,
            )
        )
    return figures


def _intensity(point: Point) -> float | None:
    flops, count = _work(point, "flops"), _work(point, "bytes")
    return flops / count if flops and count else None
