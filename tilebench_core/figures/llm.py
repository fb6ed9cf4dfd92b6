"""Figures of the LLM track: cost and efficiency bars, the refinement of one operator, efficiency over a budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilebench_core.analysis.points import Contestant
from tilebench_core.figures.draw import STYLE, save
from tilebench_core.figures.palette import Look, looks

__all__ = ["draw_bars", "draw_budget", "draw_refinement"]


def _looks(backends: Sequence[str]) -> dict[str, Look]:
    contestants = [Contestant(backend=backend) for backend in sorted(set(backends))]
    return {who.backend: look for who, look in looks(contestants).items()}


def _canvas(width: float, height: float, columns: int = 1) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def draw_bars(rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Cost and efficiency per model and DSL. Rows hold `label`, `backend`, `per_mtoken`, `per_mtoken_share`, `mtokens`,
    `passed` and `operators`; a value that is None is not drawn."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figure, (left, right) = _canvas(9.0, 0.6 + 0.42 * max(3, len(rows)), 2)
        style = _looks([row["backend"] for row in rows])
        for place, row in enumerate(rows):
            colour = style[row["backend"]].colour
            if row["per_mtoken"] is not None:
                left.barh(place, row["per_mtoken"], color=colour, height=0.6)
                if row["per_mtoken_share"] is not None and row["per_mtoken_share"] != row["per_mtoken"]:
                    left.plot(row["per_mtoken_share"], place, marker="|", markersize=14, color="#222222")
            right.barh(place, row["mtokens"], color=colour, height=0.6)
            right.annotate(f"{row['passed']}/{row['operators']} passed", (row["mtokens"], place), (4, 0),
                           textcoords="offset points", va="center", fontsize=8)  # fmt: skip
        left.set_yticks(range(len(rows)), [row["label"] for row in rows])
        right.set_yticks([])
        left.set_xlabel("best speedup per million tokens (mean; bar: all tokens, mark: divided)")
        right.set_xlabel("million tokens")
        right.margins(x=0.25)
        for axes in (left, right):
            axes.invert_yaxis()
        return save(figure, path)


def draw_refinement(
    title: str, series: Mapping[str, Sequence[Mapping[str, Any]]], freeze_at: float | None, path: Path
) -> Path:
    """The lowest share of the roofline over the rounds of one operator. `series` maps a DSL to its rounds, each with `round`,
    `status`, `share` (None where it has none) and `frozen`. Failures are marked below the axis, a freeze by a ring."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figure, (axes,) = _canvas(7.2, 3.6)
        style = _looks(list(series))
        for offset, (backend, rounds) in enumerate(sorted(series.items())):
            look = style[backend]
            timed = [row for row in rounds if row["share"] is not None]
            axes.plot(
                [r["round"] + 1 for r in timed],
                [100 * r["share"] for r in timed],
                color=look.colour,
                marker=look.marker,
                label=backend,
            )
            best, steps = 0.0, []
            for row in rounds:
                best = max(best, row["share"] or 0.0)
                steps.append(100 * best)
            axes.step([r["round"] + 1 for r in rounds], steps, where="post", color=look.colour, alpha=0.3, linewidth=4)
            failed = [row for row in rounds if row["share"] is None]
            for row in failed:
                height = -6.0 - 7.0 * offset
                axes.plot(row["round"] + 1, height, marker="x", color=look.colour, clip_on=False)
                axes.annotate(
                    row["status"],
                    (row["round"] + 1, height),
                    (0, -9),
                    textcoords="offset points",
                    ha="center",
                    fontsize=5.5,
                )
            for row in [row for row in rounds if row["frozen"] and row["share"] is not None]:
                axes.plot(
                    row["round"] + 1,
                    100 * row["share"],
                    marker="o",
                    markersize=14,
                    markerfacecolor="none",
                    color="#222222",
                )
                axes.annotate(
                    "frozen",
                    (row["round"] + 1, 100 * row["share"]),
                    (0, 11),
                    textcoords="offset points",
                    ha="center",
                    fontsize=8,
                )
        if freeze_at is not None:
            axes.axhline(100 * freeze_at, color="#888888", linestyle=":", linewidth=1)
        axes.set_xticks(sorted({row["round"] + 1 for rounds in series.values() for row in rounds}))
        axes.set_xlabel("round")
        axes.set_ylabel("lowest share of the roofline, %")
        axes.set_title(title)
        axes.legend()
        return save(figure, path)


def draw_budget(lines: Mapping[str, Sequence[tuple[float, float]]], axis_label: str, path: Path) -> Path:
    """Mean efficiency reached within a budget. `lines` maps a label to its steps (budget, efficiency)."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figure, (axes,) = _canvas(6.4, 3.6)
        style = _looks([label.split(" ")[0] for label in lines])
        for label, points in sorted(lines.items()):
            end = 1.03 * max(x for line in lines.values() for x, _ in line)  # so that the last step can be seen
            points = [*points, (end, points[-1][1])]
            xs, ys = [0.0, *(x for x, _ in points)], [0.0, *(100 * y for _, y in points)]
            axes.step(xs, ys, where="post", color=style[label.split(" ")[0]].colour, label=label)
        axes.set_xlabel(axis_label)
        axes.set_ylabel("mean efficiency over all operators, %")
        axes.set_ylim(bottom=0)
        axes.legend()
        return save(figure, path)
