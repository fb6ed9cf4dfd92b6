"""Charts as small inline SVG: a few hundred bytes per line, so that a page of 45 operators stays light.

Colours and markers are CSS classes and markers that the page defines once (see `styles` and `markers`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from tilebench_core.analysis.points import Contestant
from tilebench_core.figures.lines import Figure
from tilebench_core.figures.palette import Look
from tilebench_core.figures.ticks import human, log_ticks, spread, tick_label

__all__ = ["chart", "markers", "sparkline", "styles"]

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 330, 210, 44, 10, 24, 34


def styles(looks: Sequence[Look]) -> str:
    """CSS for each look: class k0, k1, … in the order given."""
    rules = []
    for index, look in enumerate(looks):
        dash = "" if look.solid else "stroke-dasharray:5 3;"
        rules.append(
            f".k{index}{{stroke:{look.colour};{dash}marker:url(#m{index})}}.b{index}{{--colour:{look.colour};"
            f"--style:{'solid' if look.solid else 'dashed'}}}"
        )
    return "".join(rules)


def markers(looks: Sequence[Look]) -> str:
    """SVG definitions of each look's marker, to stand once in the page."""
    shapes = {
        "x": "M1 1L7 7M1 7L7 1", "+": "M4 0V8M0 4H8", "s": "M1 1H7V7H1Z", "^": "M4 .5L7.5 7H.5Z", "v": "M4 7.5L7.5 1H.5Z",
        "D": "M4 0L8 4L4 8L0 4Z", "P": "M3 1H5V3H7V5H5V7H3V5H1V3H3Z", "X": "M2 1L4 3L6 1L7 2L5 4L7 6L6 7L4 5L2 7L1 6L3 4L1 2Z",
    }  # fmt: skip
    circle = "M4 .8A3.2 3.2 0 1 1 4 7.2A3.2 3.2 0 1 1 4 .8Z"
    found = []
    for index, look in enumerate(looks):
        fill = look.colour if look.solid else "#fff"
        found.append(
            f'<marker id="m{index}" viewBox="-1 -1 10 10" refX="4" refY="4" markerWidth="6" markerHeight="6" '
            f'markerUnits="userSpaceOnUse"><path d="{shapes.get(look.marker, circle)}" fill="{fill}" '
            f'stroke="{look.colour}" stroke-width="1.4"/></marker>'
        )
    return f'<svg width="0" height="0" aria-hidden="true" style="position:absolute"><defs>{"".join(found)}</defs></svg>'


def _scale(low: float, high: float, start: float, end: float, log: bool) -> Callable[[float], float]:
    if log:
        low, high = math.log(low), math.log(high)
        return lambda value: start + (math.log(value) - low) / ((high - low) or 1) * (end - start)
    return lambda value: start + (value - low) / ((high - low) or 1) * (end - start)


def _linear_ticks(high: float) -> list[float]:
    step = 10 ** math.floor(math.log10(high or 1))
    step = next(s for s in (step / 5, step / 2, step, step * 2) if high / s <= 6)
    return [index * step for index in range(int(high / step) + 1)]


def _short(value: float) -> str:
    return f"{value:.4g}"


def chart(figure: Figure, index_of: Mapping[Contestant, int]) -> str:
    """The figure as an `<svg>`. The lines carry their values for the page's tooltips."""
    xs = [x for line in figure.lines for x in line.x] + [x for x, _ in figure.roof]
    ys = [y for line in figure.lines for y in line.y] + [y for _, y in figure.roof]
    ys += [figure.reference] if figure.reference else []
    x_pad = 1.04 if figure.log_x else 0
    x_low, x_high = (min(xs) / x_pad, max(xs) * x_pad) if figure.log_x else (min(xs) - 0.3, max(xs) + 0.3)
    y_low, y_high = (min(ys) / 1.12, max(ys) * 1.12) if figure.log_y else (0.0, max(ys) * 1.08)
    px = _scale(x_low, x_high, LEFT, WIDTH - RIGHT, figure.log_x)
    py = _scale(y_low, y_high, HEIGHT - BOTTOM, TOP, figure.log_y)
    parts = [f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(figure.title)}">']
    parts.append(f'<text class="t" x="4" y="13">{escape(figure.title)}, {escape(figure.y_label)}</text>')
    parts += _axes(figure, px, py, sorted(set(xs)), (x_low, x_high), (y_low, y_high))
    if figure.reference is not None:
        y = f"{py(figure.reference):.1f}"
        parts.append(f'<path class="r" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>')
    if figure.roof:
        parts.append(f'<polyline class="f" points="{_points(figure.roof, px, py)}"/>')
    scattered = " dots" if figure.name == "roofline" else ""
    for line in figure.lines:
        index = index_of[line.contestant]
        points = list(zip(line.x, line.y, strict=True))
        parts.append(
            f'<polyline class="l k{index}{scattered}" points="{_points(points, px, py)}" data-k="{index}" '
            f'data-x="{" ".join(map(_short, line.x))}" data-y="{" ".join(map(_short, line.y))}"/>'
        )
    return "".join([*parts, "</svg>"])


def _axes(
    figure: Figure, px: Callable[[float], float], py: Callable[[float], float], xs: Sequence[float],
    x_range: tuple[float, float], y_range: tuple[float, float],
) -> list[str]:  # fmt: skip
    if figure.name == "roofline":
        x_ticks = [(x, human(x)) for x in log_ticks(*x_range)]
    else:
        x_ticks = [
            (x, tick_label(x, figure.x_label))
            for x in (spread(xs, 6) if figure.log_x else list(xs)[:: len(xs) // 8 + 1])
        ]
    y_ticks = log_ticks(*y_range) if figure.log_y else _linear_ticks(y_range[1])
    bottom, parts = HEIGHT - BOTTOM, []
    grid = "".join(f"M{LEFT} {py(y):.1f}H{WIDTH - RIGHT}" for y in y_ticks)
    grid += "".join(f"M{px(x):.1f} {bottom}V{TOP}" for x, _ in x_ticks)
    parts.append(f'<path class="g" d="{grid}"/><path class="a" d="M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}"/>')
    parts += [f'<text x="{LEFT - 4}" y="{py(y) + 3:.1f}" class="e">{human(y)}</text>' for y in y_ticks]
    parts += [f'<text x="{px(x):.1f}" y="{bottom + 12}" class="m">{label}</text>' for x, label in x_ticks]
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle:.0f}" y="{HEIGHT - 6}" class="m">{escape(figure.x_label)}</text>')
    return parts


def _points(points: Sequence[tuple[float, float]], px: Callable[[float], float], py: Callable[[float], float]) -> str:
    return " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in points)


def sparkline(values: Sequence[float], colour: str) -> str:
    """A line of a few millimetres, on a logarithmic scale; the grey one is a ratio of 1."""
    if len(values) < 2:
        return ""
    low, high = min(*values, 1 / 1.02), max(*values, 1.02)
    px, py = _scale(0, len(values) - 1, 2, 78, False), _scale(low, high, 18, 2, True)
    points = _points(list(enumerate(values)), px, py)
    return (
        f'<svg class="spark" viewBox="0 0 80 20"><path class="r" d="M2 {py(1):.1f}H78"/>'
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/></svg>'
    )
