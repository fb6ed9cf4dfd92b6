"""Static figures for papers: PDF, SVG and PNG, each with the values that it shows as CSV."""

from __future__ import annotations

import csv
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilebench_core.figures.draw import STYLE, save
from tilebench_core.figures.palette import looks
from tilebench_core.report.content import Content
from tilebench_core.report.values import VALUES, Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PAPER_FORMATS", "PaperFigure", "figures_beside", "paper_figures", "planned_figures"]

PAPER_FORMATS = ("pdf", "svg", "png")
_CATEGORY_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C510A")


@dataclass(frozen=True)
class PaperFigure:
    """One figure to draw: its rows, with a heading, and where it goes."""

    name: str
    rows: Rows
    colours: dict[str, str]
    folder: Path

    def write(self, formats: Sequence[str]) -> list[Path]:
        """Draw it in every format, and write its values beside it."""
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self.folder.mkdir(parents=True, exist_ok=True)
        paths = [self.folder / f"{self.name}.{form}" for form in formats]
        with mpl.rc_context(STYLE):
            canvas = Figure(figsize=(6.6, 4.2))
            FigureCanvasAgg(canvas)
            _DRAW[self.name](canvas, [dict(zip(self.rows[0], row, strict=True)) for row in self.rows[1:]], self.colours)
            for path in paths:
                save(canvas, path, dpi=150)
        with (self.folder / f"{self.name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(self.rows)
        return [*paths, self.folder / f"{self.name}.csv"]


def planned_figures(content: Content, folder: Path) -> list[PaperFigure]:
    """Every figure that the records allow; a folder per condition where there are several."""
    planned = []
    for group in content.groups:
        name = "-".join(filter(None, [group.device, group.clock, group.cache])).replace(" ", "-").replace("/", "-")
        target = folder / name if len(content.groups) > 1 else folder
        colours = {who.label: look.colour for who, look in looks(group.view.contestants).items()}
        for figure, values in VALUES.items():
            rows = values(group)
            if len(rows) > 1:
                planned.append(PaperFigure(figure, rows, colours, target))
    return planned


def paper_figures(content: Content, folder: Path, formats: Sequence[str] = PAPER_FORMATS) -> list[Path]:
    """Draw every figure that the records allow in this process."""
    return [path for figure in planned_figures(content, folder) for path in figure.write(formats)]


@contextmanager
def figures_beside(content: Content, folder: Path, formats: Sequence[str]) -> Iterator[Callable[[], list[Path]]]:
    """Draw the figures in processes of their own while the caller goes on; what is yielded waits for their paths."""
    figures = planned_figures(content, folder)
    if len(figures) < 2 or "fork" not in multiprocessing.get_all_start_methods():
        yield lambda: [path for figure in figures for path in figure.write(formats)]
        return
    import_module("matplotlib.figure")  # once, instead of in each process

    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(figures)), context) as pool:
        waiting = [pool.submit(figure.write, formats) for figure in figures]
        yield lambda: [path for future in waiting for path in future.result()]


def _categories(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    names = sorted({row["category"] for row in rows})
    return {name: _CATEGORY_COLOURS[index % len(_CATEGORY_COLOURS)] for index, name in enumerate(names)}


def _log(axes: Axes, which: str, values: Sequence[float]) -> None:
    """A logarithmic axis with labels at round numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    from tilebench_core.figures.ticks import human, log_ticks

    low, high = min(values) / 1.15, max(values) * 1.15
    getattr(axes, f"set_{which}scale")("log")
    getattr(axes, f"set_{which}lim")(low, high)
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(FixedLocator(log_ticks(low, high)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: human(value)))


def _scatter(canvas: Figure, rows: Sequence[dict[str, Any]], colours: dict[str, str]) -> None:
    axes = canvas.add_subplot()
    first, second = rows[0]["first"], rows[0]["second"]
    values = [row[key] for row in rows for key in ("first_speedup", "second_speedup")]
    for category, colour in _categories(rows).items():
        mine = [row for row in rows if row["category"] == category]
        xs, ys = [r["first_speedup"] for r in mine], [r["second_speedup"] for r in mine]
        axes.scatter(xs, ys, s=26, color=colour, label=category, edgecolor="white", linewidth=0.5, zorder=3)
    _log(axes, "x", [*values, 1.0])
    _log(axes, "y", [*values, 1.0])
    limits = axes.get_xlim()
    axes.plot(limits, limits, color="#888888", linewidth=1, linestyle=":")
    axes.axhline(1, color="#BBBBBB", linewidth=0.8)
    axes.axvline(1, color="#BBBBBB", linewidth=0.8)
    axes.set_aspect("equal")
    axes.set(xlabel=f"{first}: speedup over PyTorch", ylabel=f"{second}: speedup over PyTorch")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def _arrows(canvas: Figure, rows: Sequence[dict[str, Any]], colours: dict[str, str]) -> None:
    axes = canvas.add_subplot()
    for row in rows:
        start, end = (row["intensity"], row["default_tflops"]), (row["intensity"], row["tuned_tflops"])
        arrow = {"arrowstyle": "-|>", "color": colours[row["backend"]], "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", xy=end, xytext=start, arrowprops=arrow, zorder=3).set_in_layout(False)
    _roof(axes, rows)
    for backend in dict.fromkeys(row["backend"] for row in rows):
        mine = [row for row in rows if row["backend"] == backend]
        xs, ys = [row["intensity"] for row in mine], [row["default_tflops"] for row in mine]
        axes.scatter(xs, ys, s=12, color=colours[backend], label=backend, zorder=3)
    _log(axes, "x", [row["intensity"] for row in rows])
    _log(axes, "y", [row[key] for row in rows for key in ("default_tflops", "tuned_tflops", "roof_tflops") if row[key]])
    axes.set(xlabel="arithmetic intensity, FLOP/byte", ylabel="TFLOP/s, default → tuned, largest case")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def _roof(axes: Axes, rows: Sequence[dict[str, Any]]) -> None:
    """Each case's own ceiling as a short bar: operators of several precisions have several roofs."""
    for intensity, roof in sorted({(row["intensity"], row["roof_tflops"]) for row in rows if row["roof_tflops"]}):
        axes.plot([intensity / 1.08, intensity * 1.08], [roof, roof], color="#777777", linewidth=1.6, zorder=2)
    axes.plot([], [], color="#777777", linewidth=1.6, label="roofline")


def _bars(canvas: Figure, rows: Sequence[dict[str, Any]], colours: dict[str, str]) -> None:
    names = list(dict.fromkeys((row["operator"], row["dtype"]) for row in rows))
    backends = list(dict.fromkeys(row["backend"] for row in rows))
    canvas.set_size_inches(7, max(3.0, 0.075 * len(names) * (len(backends) + 1) + 1))
    axes = canvas.add_subplot()
    height = 0.82 / len(backends)
    for index, backend in enumerate(backends):
        found = {(row["operator"], row["dtype"]): row["median_us"] for row in rows if row["backend"] == backend}
        places = [place + index * height for place, name in enumerate(names) if name in found]
        axes.barh(
            places, [found[name] for name in names if name in found], height, color=colours[backend], label=backend
        )
    _log(axes, "x", [row["median_us"] for row in rows])
    axes.set_yticks([place + 0.41 - height / 2 for place in range(len(names))], [o for o, _ in names], fontsize=7)
    axes.set_ylim(len(names), -0.5)
    axes.set_xlabel(f"median latency at the largest case, µs ({names[0][1]})")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def _boxes(value: str, label: str, by: str) -> Callable[[Figure, Sequence[dict[str, Any]], dict[str, str]], None]:
    def draw(canvas: Figure, rows: Sequence[dict[str, Any]], colours: dict[str, str]) -> None:
        axes = canvas.add_subplot()
        groups = sorted({row[by] for row in rows})
        backends = list(dict.fromkeys(row["backend"] for row in rows))
        width = 0.8 / len(backends)
        for index, backend in enumerate(backends):
            for place, name in enumerate(groups):
                values = [row[value] for row in rows if row["backend"] == backend and row[by] == name]
                if values:
                    box = axes.boxplot(
                        [values], positions=[place + (index + 0.5) * width - 0.4], widths=width * 0.85,
                        patch_artist=True, manage_ticks=False, flierprops={"markersize": 2.5},
                        medianprops={"color": "white"}, showfliers=True,
                    )  # fmt: skip
                    box["boxes"][0].set_facecolor(colours[backend])
            axes.scatter([], [], marker="s", color=colours[backend], label=backend)
        axes.axhline(1, color="#888888", linewidth=1, linestyle=":")
        axes.set_xticks(range(len(groups)), groups)
        _log(axes, "y", [*(row[value] for row in rows), 1.0])
        axes.set_ylabel(label)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))

    return draw


def _roofline(canvas: Figure, rows: Sequence[dict[str, Any]], colours: dict[str, str]) -> None:
    axes = canvas.add_subplot()
    _roof(axes, rows)
    for backend in dict.fromkeys(row["backend"] for row in rows):
        mine = [row for row in rows if row["backend"] == backend]
        xs, ys = [row["intensity"] for row in mine], [row["tflops"] for row in mine]
        axes.scatter(xs, ys, s=18, color=colours[backend], label=backend, alpha=0.85, zorder=3)
    _log(axes, "x", [row["intensity"] for row in rows])
    _log(axes, "y", [row[key] for row in rows for key in ("tflops", "roof_tflops") if row[key]])
    axes.set(xlabel="arithmetic intensity, FLOP/byte", ylabel="TFLOP/s at the largest case")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def _heat(canvas: Figure, rows: Sequence[dict[str, Any]], colours: dict[str, str]) -> None:
    operators = list(dict.fromkeys(row["operator"] for row in rows))
    backends = list(dict.fromkeys(row["backend"] for row in rows))
    found = {(row["operator"], row["backend"]): row["utilisation"] * 100 for row in rows}
    canvas.set_size_inches(2.4 + 0.62 * len(backends), 1.2 + 0.19 * len(operators))
    axes = canvas.add_subplot()
    grid = [[found.get((operator, backend), float("nan")) for backend in backends] for operator in operators]
    image = axes.imshow(grid, cmap="cividis", vmin=0, vmax=100, aspect="auto")
    for y, line in enumerate(grid):
        for x, value in enumerate(line):
            if value == value:  # not NaN
                axes.text(
                    x, y, f"{value:.0f}", ha="center", va="center", fontsize=7, color="black" if value > 55 else "white"
                ).set_in_layout(False)  # it is inside: measuring each of hundreds takes seconds
    axes.set_xticks(range(len(backends)), backends, rotation=35, ha="right", fontsize=8)
    axes.set_yticks(range(len(operators)), operators, fontsize=7)
    axes.grid(False)
    canvas.colorbar(image, ax=axes, label="roofline utilisation, % (all cases)")


_DRAW: dict[str, Callable[[Figure, Sequence[dict[str, Any]], dict[str, str]], None]] = {
    "speedup_scatter": _scatter,
    "tuning_arrows": _arrows,
    "latency_bars": _bars,
    "speedup_boxes": _boxes("speedup", "speedup over PyTorch, by case", "category"),
    "roofline": _roofline,
    "tuning_gain_boxes": _boxes("gain", "default / tuned latency, by case", "category"),
    "utilisation_heat_map": _heat,
}
