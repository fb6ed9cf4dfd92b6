"""The report as one HTML page that needs no network."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from tilebench_core.analysis.points import Contestant, Point
from tilebench_core.analysis.standings import tuning_gain
from tilebench_core.figures.lines import figures_of
from tilebench_core.figures.palette import looks
from tilebench_core.report.cells import (
    Table,
    duel_table,
    environment_rows,
    failure_table,
    group_tables,
    operator_table,
    share,
    suite_tables,
)  # fmt: skip
from tilebench_core.report.chart import chart, markers, sparkline, styles
from tilebench_core.report.content import Content, Group, OperatorRow, Trouble, params_text
from tilebench_core.report.diagnosis import Diagnosis, diagnoses

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["html_report"]

_SHOWN = ("latency", "speedup", "bandwidth", "bandwidth_share", "tflops", "roofline")


@dataclass(frozen=True, kw_only=True)
class DtypeSection:
    """One dtype of an operator: its charts, its cases as a table, and its winning configurations."""

    dtype: str
    charts: Sequence[str]
    cases: Table
    configs: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, kw_only=True)
class OperatorSection:
    """Everything about one operator in one condition."""

    anchor: str
    operator: str
    category: str
    summary: str
    dtypes: Sequence[DtypeSection]
    troubles: Sequence[Trouble]
    diagnoses: Sequence[Diagnosis]


@lru_cache(maxsize=1)
def _template() -> Template:
    from jinja2 import Environment

    text = files("tilebench_core.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(text)


def html_report(content: Content, out: Path | None = None) -> str:
    """The whole page: failures, summary, categories, wins, operators, a section per operator, environment.

    `out` is the folder that the page is written to, from which it links to kept code.
    """
    style = looks(content.view.contestants)
    index_of = {who: index for index, who in enumerate(content.view.contestants)}
    by_operator: dict[str, list[Trouble]] = defaultdict(list)
    for trouble in content.failures:
        by_operator[trouble.operator].append(trouble)
    diagnosed: dict[str, list[Diagnosis]] = defaultdict(list)
    for diagnosis in diagnoses(content.campaigns, out):
        diagnosed[diagnosis.operator].append(diagnosis)
    groups = []
    for number, group in enumerate(content.groups):
        table = operator_table(group)
        sparks = [sparkline(row.trend, style[row.best].colour) if row.best else "" for row in group.operators]
        groups.append(
            {
                "title": group.title,
                "suite": suite_tables(group),
                "duels": duel_table(group),
                "operators": table,
                "tables": [table for table in group_tables(group) if table.rows],
                "rows": list(zip(table.rows, sparks, [_anchor(number, row[0]) for row in table.rows], strict=True)),
                "legend": [(index_of[who], who.label) for who in group.contestants],
                "sections": [
                    _section(number, group, row, index_of, by_operator[row.operator], diagnosed[row.operator])
                    for row in group.operators
                ],
            }
        )
    return _template().render(
        content=content, groups=groups, styles=styles(list(style.values())), markers=markers(list(style.values())),
        labels=[who.label for who in content.view.contestants],
        failures=failure_table("Failures", content.failures),
        inapplicable=failure_table("Not applicable here", content.inapplicable),
        environment=environment_rows(content), configs=[(c.name, c.config_text) for c in content.campaigns],
    )  # fmt: skip


def _anchor(number: int, operator: str) -> str:
    return f"o{number}-" + re.sub(r"[^A-Za-z0-9_-]", "-", operator)


def _section(
    number: int, group: Group, row: OperatorRow, index_of: dict[Contestant, int], troubles: Sequence[Trouble],
    diagnosed: Sequence[Diagnosis],
) -> OperatorSection:  # fmt: skip
    operator = row.operator
    view = group.view.by_operator[operator]
    peaks = group.peaks
    dtypes = []
    for dtype in dict.fromkeys(point.dtype for point in view.points):
        part = view.only(dtype=dtype)
        figures = {figure.name: figure for figure in figures_of(part, group.contestants, peaks)}
        dtypes.append(
            DtypeSection(
                dtype=dtype,
                charts=[chart(figures[name], index_of) for name in _SHOWN if name in figures],
                cases=_cases(part.points, group.contestants),
                configs=_configs(part.points, group.contestants),
            )
        )
    best = f"best: {row.best.label}, {row.best_speedup:.2f}× over PyTorch" if row.best and row.best_speedup else ""
    gains = [gain for p in view.points for who in group.contestants if (gain := tuning_gain(p, who))]
    tuned = f"tuning gained up to {max(gains):.2f}×" if gains else ""
    summary = " · ".join(filter(None, [row.category, best, tuned, f"{share(row.pass_rate)} passed"]))
    return OperatorSection(
        anchor=_anchor(number, operator), operator=operator, category=row.category, summary=summary, dtypes=dtypes,
        troubles=troubles, diagnoses=diagnosed,
    )  # fmt: skip


def _cases(points: Sequence[Point], contestants: Sequence[Contestant]) -> Table:
    """Median latencies in µs, one row per case."""
    present = [who for who in contestants if any(who in point.valid for point in points)]
    rows = []
    for point in points:
        times = [point.valid[who].median_us if who in point.valid else None for who in present]
        cells = ["–" if time is None else f"{time:.2f}" if time < 100 else f"{time:.1f}" for time in times]
        rows.append([params_text(point.params), *cells])
    return Table("Median latency, µs", ["Case", *(who.label for who in present)], rows, frozenset({"Case"}))


def _configs(points: Sequence[Point], contestants: Sequence[Contestant]) -> list[tuple[str, str, str]]:
    """(contestant, configuration, cases that use it), the most used first."""
    rows = []
    for who in contestants:
        used: dict[str, list[int]] = defaultdict(list)
        for point in points:
            record = point.valid.get(who)
            if record and record.config:
                used[params_text(record.config)].append(point.index)
        for config, cases in sorted(used.items(), key=lambda item: -len(item[1])):
            rows.append((who.label, config, _ranges(cases)))
    return rows


def _ranges(numbers: Sequence[int]) -> str:
    """0, 1, 2, 5 → 0–2, 5."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)
