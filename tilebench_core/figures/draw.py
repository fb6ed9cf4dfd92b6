"""Figures as PNG files, with matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilebench_core.analysis.points import Contestant, view_of
from tilebench_core.analysis.results import Results, load_results
from tilebench_core.figures.lines import Figure, figures_of
from tilebench_core.figures.palette import Look, looks
from tilebench_core.figures.ticks import human, spread, subs, tick_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

__all__ = ["STYLE", "draw_figures", "plot", "save", "save_figures"]

STYLE: Any = {  # matplotlib's stubs list every key

    "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#E3E3E3",
    "grid.linewidth": 0.6, "axes.axisbelow": True, "legend.frameon": False, "legend.fontsize": 9, "svg.fonttype": "none",
    "pdf.fonttype": 42, "figure.dpi": 100, "savefig.bbox": "tight", "axes.titlesize": 11, "axes.titleweight": "bold",
    "axes.edgecolor": "#888888", "svg.hashsalt": "tilebench",
}  # fmt: skip


def plot(axes: Axes, figure: Figure, style: Mapping[Contestant, Look]) -> None:
    """Draw a figure's lines, reference and roof into `axes`."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

    scattered = figure.name == "roofline"
    for line in figure.lines:
        look = style[line.contestant]
        axes.plot(
            line.x, line.y, color=look.colour, marker=look.marker, markersize=4.5, label=line.contestant.label,
            linewidth=0.0 if scattered else 1.5, linestyle="-" if look.solid else (0, (4, 2)),
            markerfacecolor=look.colour if look.solid else "white", markeredgewidth=1.2,
        )  # fmt: skip
    if figure.roof:
        axes.plot(*zip(*figure.roof, strict=True), color="#888888", linewidth=1.4, zorder=1, label="roof")
    if figure.reference is not None:
        axes.axhline(figure.reference, color="#888888", linewidth=1.0, linestyle=":", zorder=1)
    xs = sorted({x for line in figure.lines for x in line.x})
    if figure.log_x:
        axes.set_xscale("log")
        if scattered:
            span = [*xs, *(x for x, _ in figure.roof)]
            axes.xaxis.set_major_locator(LogLocator(subs=subs(max(span) / min(span)), numticks=12))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: human(value)))
            axes.xaxis.set_minor_formatter(NullFormatter())
        else:
            axes.xaxis.set_major_locator(FixedLocator(spread(xs, 7)))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tick_label(value, figure.x_label)))
            axes.xaxis.set_minor_locator(NullLocator())
    if figure.log_y:
        values = [y for line in figure.lines for y in line.y] + [y for _, y in figure.roof]
        values += [figure.reference] if figure.reference else []
        axes.set_yscale("log")
        axes.set_ylim(min(values) / 1.12, max(values) * 1.12)
        axes.yaxis.set_major_locator(LogLocator(subs=subs(max(values) / min(values)), numticks=12))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: human(value)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)


def save(canvas: Canvas, path: Path, **options: Any) -> Path:
    """Write a picture in the format of the path's suffix, below folders that need not exist; return the path.

    The same figure in `STYLE` gives the same bytes: whoever makes a report again sees what has changed. So no date is kept.
    """
    form = path.suffix.removeprefix(".")
    dates = {"svg": "Date", "pdf": "CreationDate"}
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(path, format=form, metadata={dates[form]: None} if form in dates else None, **options)
    return path


def save_figures(
    figures: Iterable[Figure], heading: str, style: Mapping[Contestant, Look], folder: Path, formats: Iterable[str]
) -> list[Path]:
    """Write each figure as `<folder>/<name>.<format>` and return the paths."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    written = []
    formats = tuple(formats)
    with mpl.rc_context(STYLE):
        for figure in figures:
            canvas = Canvas(figsize=(6.4, 3.8))
            FigureCanvasAgg(canvas)
            axes = canvas.add_subplot()
            plot(axes, figure, style)
            axes.set_title(f"{heading} · {figure.title[0].lower()}{figure.title[1:]}", loc="left")
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02))
            written += [save(canvas, folder / f"{figure.name}.{form}") for form in formats]
    return written


def draw_figures(
    folder: Path, *, plots: Mapping[str, Iterable[str]] | None = None, formats: Iterable[str] = ("png",),
    campaign: Results | None = None,
) -> list[Path]:  # fmt: skip
    """Draw all figures of the campaign in `folder` to `figures/<operator>/<dtype>/<name>.png`; return the paths.

    `plots` names the figures wanted per operator (its config's `metrics.plots`); without it all are drawn. Where a
    campaign holds several conditions (device, clock, cache), each has its own file name.
    """
    campaign = campaign or load_results(folder)
    view = view_of(campaign.records)
    style = looks(view.contestants)
    written = []
    for operator, dtype in dict.fromkeys((point.operator, point.dtype) for point in view.points):
        part = view.by_operator[operator].only(dtype=dtype)
        wanted = None if plots is None or operator not in plots else set(plots[operator])
        for condition in part.conditions:
            figures = figures_of(part.under(*condition), view.contestants, campaign.peaks)
            figures = [figure for figure in figures if wanted is None or figure.name in wanted]
            heading, target = f"{operator} · {dtype}", folder / "figures" / operator / dtype
            if len(part.conditions) > 1:
                heading = f"{heading} · {', '.join(filter(None, condition))}"
                target = target / "-".join(filter(None, condition)).replace(" ", "-").replace("/", "-")
            written += save_figures(figures, heading, style, target, formats)
    return written
