"""The tuning log as a figure per operator and dtype: latency over candidates, default and winner marked, failures shown."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilebench_core.figures.draw import STYLE, save
from tilebench_core.figures.ticks import human, subs
from tilebench_core.tune.journal import Candidate, as_candidate, candidate_key, tuning_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["SearchCurve", "draw_tuning", "tuning_curves"]

_COLOURS = ("#56B4E9", "#0072B2", "#009E73", "#E69F00", "#D55E00", "#CC79A7")
_FAILED = "#B00020"
_MOST_IN_LEGEND = 6


@dataclass(frozen=True, kw_only=True)
class SearchCurve:
    """One search: its candidates in the order of the list, which of them is the default, and which one won."""

    operator: str
    dtype: str
    params: Mapping[str, Any]
    backend: str
    kind: str
    candidates: tuple[Candidate, ...]
    default: int
    winner: int | None

    @property
    def label(self) -> str:
        """The case as a legend names it."""
        return " ".join(f"{name}={value}" for name, value in self.params.items())


def tuning_curves(events: Iterable[Mapping[str, Any]]) -> list[SearchCurve]:
    """The searches of a tuning log in their order; a candidate that was not reached has neither a median nor a failure."""
    begun: dict[str, Mapping[str, Any]] = {}
    ended: dict[str, dict[str, Candidate]] = defaultdict(dict)
    won: dict[str, str] = {}
    for event in events:
        key = event["search"]
        if event["event"] == "search":
            begun[key] = event
        elif event["event"] == "winner":
            won[key] = candidate_key(event["config"])
        elif event["event"] == "lost" and event["config"] is not None:
            ended[key][candidate_key(event["config"])] = Candidate(config=event["config"], failure=event["reason"])
        for raw in {"candidate": [event], "finals": event.get("candidates", [])}.get(event["event"], []):
            ended[key][candidate_key(raw["config"])] = as_candidate(raw)
    curves = []
    for key, event in begun.items():
        places = [candidate_key(config) for config in event["space"]]
        curves.append(
            SearchCurve(
                operator=event["operator"],
                dtype=event["dtype"],
                params=event["params"],
                backend=event["backend"],
                kind=event["kind"],
                candidates=tuple(ended[key].get(c, Candidate(config={})) for c in places),
                default=places.index(candidate_key(event["default"])),
                winner=places.index(won[key]) if won.get(key) in places else None,
            )
        )
    return curves


def draw_tuning(folder: Path, formats: Iterable[str] = ("png",)) -> list[Path]:
    """Draw the tuning log of the campaign in `folder` to `figures/<operator>/<dtype>/tuning.png`; return the paths.

    A panel is a backend and a kind of search, a line one case. Without a search in the log nothing is drawn.
    """
    grouped: dict[tuple[str, str], dict[tuple[str, str], list[SearchCurve]]] = defaultdict(lambda: defaultdict(list))
    for curve in tuning_curves(tuning_log(folder).events()):
        if any(c.median_us is not None or c.failure for c in curve.candidates):
            grouped[curve.operator, curve.dtype][curve.backend, curve.kind].append(curve)
    written: list[Path] = []
    for (operator, dtype), panels in grouped.items():
        written += _save(f"{operator} · {dtype} · tuning", panels, folder / "figures" / operator / dtype, formats)
    return written


def _save(
    heading: str, panels: Mapping[tuple[str, str], Sequence[SearchCurve]], folder: Path, formats: Iterable[str]
) -> list[Path]:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(1.2 + 5.2 * len(panels), 4.0), layout="constrained")
        FigureCanvasAgg(canvas)
        rows = canvas.subplots(1, len(panels), squeeze=False, sharey=True)
        for axes, ((backend, kind), curves) in zip(rows[0], sorted(panels.items()), strict=True):
            _panel(axes, curves)
            axes.set_title(f"{backend}, {kind} search", loc="left")
        rows[0][0].set_ylabel("µs")
        canvas.suptitle(heading, x=0.02, ha="left", fontweight="bold")
        return [save(canvas, folder / f"tuning.{form}") for form in formats]


def _panel(axes: Axes, curves: Sequence[SearchCurve]) -> None:
    """Lines over the candidates' numbers; failures stand as crosses above everything that was measured."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    medians = [c.median_us for curve in curves for c in curve.candidates if c.median_us]
    top = max(medians, default=1.0)
    spread = top / min(medians, default=1.0)
    failed_y = top * max(1.15, spread**0.12)
    for number, curve in enumerate(curves):
        colour = _COLOURS[number % len(_COLOURS)]
        few = len(curves) <= _MOST_IN_LEGEND or number in (0, len(curves) - 1)
        heights = [c.median_us or math.nan for c in curve.candidates]  # the line has a gap where there is no time
        axes.plot(
            range(1, len(heights) + 1), heights, color=colour, marker="o", markersize=3.5, linewidth=1.0,
            alpha=0.9, label=curve.label if few else None,
        )  # fmt: skip
        for place, marker, size, face in ((curve.default, "s", 9, "none"), (curve.winner, "*", 13, colour)):
            median = curve.candidates[place].median_us if place is not None else None
            if place is not None and median:
                axes.plot(
                    [place + 1], [median], color=colour, marker=marker, markersize=size, markerfacecolor=face,
                    markeredgecolor="#222222" if marker == "*" else colour, markeredgewidth=1.0, linestyle="none",
                )  # fmt: skip
    failed = sorted({x for curve in curves for x, c in enumerate(curve.candidates, 1) if c.failure})
    axes.plot(
        failed, [failed_y] * len(failed), color=_FAILED, marker="x", markersize=7, linestyle="none", clip_on=False
    )
    # What the markers mean, once and in no case's colour.
    for marker, label, shown in (("s", "default", True), ("*", "winner", True), ("x", "failed", bool(failed))):
        if shown:
            grey = _FAILED if marker == "x" else "#555555"
            axes.plot([], [], marker=marker, color=grey, markerfacecolor="none", linestyle="none", label=label)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=subs(max(spread, 1.01)), numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: human(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("candidate, in the order of the list")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
