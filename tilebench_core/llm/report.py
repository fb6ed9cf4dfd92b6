"""The report of the LLM track: tables, figures with their values as CSV, one page, and what they must say to be honest."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilebench_core.llm.metrics import Result, efficiency_over_budget, matched_ratio, results_of, rows_of, standings
from tilebench_core.llm.rounds import Trajectory
from tilebench_core.llm.run import trajectories_of

__all__ = ["Table", "notes_of", "print_summary", "tables_of", "write_llm_report"]


@dataclass(frozen=True)
class Table:
    """A table of text cells; the first `words` columns hold words, the others numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int


def _number(value: float | None, digits: int = 2, unit: str = "") -> str:
    return "–" if value is None else f"{value:,.{digits}f}{unit}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}×"


def tables_of(trajectories: Sequence[Trajectory]) -> list[Table]:
    """Standings, results, and what became of every round."""
    results = results_of(trajectories)
    standing_rows = [
        (
            s.model, s.condition, s.backend, f"{s.passed}/{s.operators}", _number(s.mean_per_mtoken), _number(s.mean_per_mtoken_share),
            _number(s.median_per_mtoken), f"{_times(s.geomean_speedup_passed)} ({s.passed - s.unknown})", _times(s.median_speedup),
            _percent(s.mean_efficiency), str(s.tokens), f"{s.money}",
        )
        for s in standings(results)
    ]  # fmt: skip
    result_rows = [
        (
            r.model, r.condition, r.operator, r.backend, r.end, str(r.rounds), str(r.clean_rounds),
            "–" if r.best_round is None else str(r.best_round + 1), "–" if r.frozen_round is None else str(r.frozen_round + 1),
            _times(r.speedup), _percent(r.efficiency), str(r.tokens), str(r.tokens_share), f"{r.money}", _number(r.per_mtoken),
            _number(r.per_mtoken_share),
        )
        for r in results
    ]  # fmt: skip
    round_rows = [
        (
            row["model"], row["condition"], row["operator"], row["backend"], row["status"], row["reason"][:90], str(row["round"] + 1),
            f"{row['passed']}/{row['planned']}", _percent(row["lowest_share"]), _times(row["speedup"]),
            f"{row['tokens_of_round']:,.0f}",
            "yes" if row["frozen"] else "",
        )
        for row in rows_of(trajectories)
    ]  # fmt: skip
    return [
        Table(
            "Standings",
            ("model", "condition", "DSL", "passed", "speedup per Mtoken, mean", "… tokens divided", "… median",
             "speedup, geomean of passed (n)",
             "speedup, median", "efficiency, mean", "tokens", "US$"), standing_rows, 3,
        ),
        *_matched(results),
        Table(
            "Results",
            ("model", "condition", "operator", "DSL", "end", "rounds", "clean", "best round", "frozen in", "speedup", "efficiency",
             "tokens",
             "tokens, divided", "US$", "speedup per Mtoken", "… divided"), result_rows, 5,
        ),
        Table(
            "Rounds",
            ("model", "condition", "operator", "DSL", "status", "reason", "round", "cases", "lowest share", "speedup",
             "tokens", "frozen"),
            round_rows, 6,
        ),
    ]  # fmt: skip


def _matched(results: Sequence[Result]) -> list[Table]:
    """Speedup ratios of two DSLs on the operators that both passed."""
    rows = []
    for model, condition in sorted({(r.model, r.condition) for r in results}):
        backends = sorted({r.backend for r in results if (r.model, r.condition) == (model, condition)})
        for place, one in enumerate(backends):
            for other in backends[place + 1 :]:
                ratio, count = matched_ratio(results, model, condition, one, other)
                rows.append((model, condition, f"{one} / {other}", _times(ratio), str(count)))
    return (
        [Table("Matched operators", ("model", "condition", "DSLs", "speedup ratio", "operators"), rows, 3)]
        if rows
        else []
    )


def notes_of(trajectories: Sequence[Trajectory]) -> list[str]:
    """What a reader has to know before the numbers."""
    notes = []
    if any(len(t.key["backends"]) > 1 for t in trajectories):
        notes.append(
            "Joint replies: the tokens of a round cannot be attributed to one DSL. Both readings are given: every DSL charged "
            "with all tokens of the rounds it was asked for in, and the tokens "
            "of each round divided equally among the DSLs that it asked for."
        )
    if any(not t.tokens.complete or not t.money.complete for t in trajectories):
        notes.append("Totals with ≥ are lower bounds: a reply was lost, or the API or the price table does not say.")
    dates = sorted({str(t.header["price"]["as_of"]) for t in trajectories if t.header.get("price")})
    if dates:
        notes.append(f"Prices: {', '.join(dates)}; the price of each reply is in its usage.json.")
    recorded = sorted({str(t.header["times_device"]) for t in trajectories if t.header.get("times_device")})
    if recorded:
        notes.append(f"Candidates were verified here; their times were recorded earlier, on {', '.join(recorded)}.")
    if any(a.status.value == "VERIFIED" for t in trajectories for r in t.rounds for a in r.attempts.values()):
        notes.append(
            "VERIFIED candidates passed every check where nothing can be timed; they have no speedup, which is not zero."
        )
    notes.append(
        "A failure counts as speedup and efficiency 0 in every mean, and its tokens count; geometric means are over those "
        "that passed, with their number."
    )
    return notes


def print_summary(folders: Sequence[Path]) -> None:
    """Print standings and results."""
    from rich.console import Console
    from rich.table import Table as Shown

    trajectories = [trajectory for folder in folders for _, trajectory in trajectories_of(folder)]
    console = Console()
    console = console if console.is_terminal else Console(width=200)  # a pipe has no width
    for table in tables_of(trajectories)[:-1]:
        shown = Shown(title=table.title, header_style="bold", pad_edge=False)
        for place, name in enumerate(table.columns):
            shown.add_column(name, justify="left" if place < table.words else "right", overflow="fold")
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)
    for note in notes_of(trajectories):
        console.print(note, style="dim")


def write_llm_report(folders: Sequence[Path], out: Path) -> list[Path]:
    """Write report.md, report.html, CSV files and figures to `out`; return the paths."""
    from jinja2 import Environment, PackageLoader

    trajectories = [trajectory for folder in folders for _, trajectory in trajectories_of(folder)]
    out.mkdir(parents=True, exist_ok=True)
    tables, notes = tables_of(trajectories), notes_of(trajectories)
    drawn = _figures(trajectories, out / "figures")
    paths = [
        _write_csv(out / "rounds.csv", rows_of(trajectories)),
        _write_csv(out / "results.csv", [_flat(r) for r in results_of(trajectories)]),
    ]
    text = ["# The LLM track", *notes]
    for table in tables:
        text += [f"## {table.title}", _markdown(table)]
    text += [f"![{title}](figures/{path.name})" for title, path in drawn]
    (out / "report.md").write_text("\n\n".join(text) + "\n", encoding="utf-8")
    pictures = [
        {"title": title, "svg": path.read_text(encoding="utf-8").partition("<svg")[1:]} for title, path in drawn
    ]
    environment = Environment(loader=PackageLoader("tilebench_core.llm"), autoescape=True)
    page = environment.get_template("report.html.j2").render(
        notes=notes, tables=tables, figures=[{**p, "svg": "".join(p["svg"])} for p in pictures]
    )
    (out / "report.html").write_text(page, encoding="utf-8")
    return [out / "report.md", out / "report.html", *paths, *(path for _, path in drawn)]


def _markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = ["---" if place < table.words else "---:" for place in range(len(table.columns))]
    return "\n".join([line(table.columns), line(rule), *(line(row) for row in table.rows)])


def _flat(result: Result) -> dict[str, Any]:
    values = dict(result.__dict__)
    for name in ("tokens", "tokens_share", "money", "money_share"):
        amount = values.pop(name)
        values |= {name: amount.value, f"{name}_complete": amount.complete}
    return {
        **values,
        "dtypes": " ".join(result.dtypes),
        "per_mtoken": result.per_mtoken,
        "per_mtoken_share": result.per_mtoken_share,
    }


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["empty"])
        writer.writeheader()
        writer.writerows(rows)
    return path


def _figures(trajectories: Sequence[Trajectory], folder: Path) -> list[tuple[str, Path]]:
    """The figures that the trajectories give, with their titles."""
    from tilebench_core.figures.llm import draw_bars, draw_budget, draw_refinement

    drawn = []
    rows = [
        {
            "label": f"{s.model}, {s.backend} ({s.condition})", "backend": s.backend, "per_mtoken": s.mean_per_mtoken,
            "per_mtoken_share": s.mean_per_mtoken_share, "mtokens": s.tokens.value / 1e6, "passed": s.passed, "operators": s.operators,
        }
        for s in standings(results_of(trajectories))
    ]  # fmt: skip
    if rows:
        drawn.append(("Cost and efficiency", draw_bars(rows, folder / "bars.svg")))
    groups: dict[tuple[str, str, str], dict[str, list[dict[str, Any]]]] = {}
    limits: dict[tuple[str, str, str], float | None] = {}
    for trajectory in trajectories:
        key = (trajectory.key["operator"], trajectory.key["model"], trajectory.key["condition"])
        limits[key] = trajectory.header["protocol"]["freeze_at"]
        for backend in trajectory.key["backends"]:
            groups.setdefault(key, {})[backend] = [
                {
                    "round": number, "status": attempt.status.value, "share": attempt.lowest_share,
                    "frozen": trajectory.frozen.get(backend) == number,
                }
                for number, attempt in trajectory.attempts(backend)
            ]  # fmt: skip
    for (operator, model, condition), series in sorted(groups.items()):
        name = "".join(c if c.isalnum() else "_" for c in f"{operator}-{model}-{condition}")
        title = f"Refinement of {operator} ({model}, {condition})"
        drawn.append(
            (
                title,
                draw_refinement(title, series, limits[operator, model, condition], folder / f"refinement-{name}.svg"),
            )
        )
    for axis, label in (("tokens", "tokens per operator"), ("money", "US$ per operator")):
        lines: dict[str, list[tuple[float, float]]] = {}
        for s in standings(results_of(trajectories)):
            mine = [t for t in trajectories if (t.key["model"], t.key["condition"]) == (s.model, s.condition)]
            points = efficiency_over_budget(mine, s.backend, axis)
            lines[f"{s.backend} ({s.model}, {s.condition})"] = [(p.budget, p.mean_efficiency) for p in points]
        if any(y > 0 for points in lines.values() for _, y in points) and any(
            x > 0 for points in lines.values() for x, _ in points
        ):
            drawn.append((f"Efficiency over {label}", draw_budget(lines, label, folder / f"budget-{axis}.svg")))
    return drawn
