"""The tables that every format shares: headings and rows of text, made once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilebench_core.analysis.accounting import accounts
from tilebench_core.analysis.fastest import CLOSE, count_leads, leads
from tilebench_core.analysis.points import is_pytorch
from tilebench_core.analysis.shortfalls import shortfalls
from tilebench_core.analysis.standings import Mean, Standing
from tilebench_core.report.content import Content, Group, Trouble, params_text

__all__ = [
    "Table",
    "accounting_table",
    "below_table",
    "duel_table",
    "failure_table",
    "fastest_table",
    "group_tables",
    "operator_table",
    "standing_table",
    "suite_tables",
]


@dataclass(frozen=True)
class Table:
    """A table. Columns whose heading is in `text` are left-aligned words; the others are numbers. `note` stands above it."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: frozenset[str] = frozenset()
    note: str = ""


def times(mean: Mean | None) -> str:
    """A mean speedup or gain with the number of its cases: 1.23× (40)."""
    return f"{mean.value:.2f}× ({mean.cases})" if mean and mean.value else "–"


def share(value: float | None) -> str:
    """A share in per cent, or a dash."""
    return "–" if value is None else f"{value * 100:.0f} %"


def standing_table(title: str, rows: Sequence[Standing]) -> Table:
    """How everybody stands. In brackets: the number of cases behind a figure."""
    floors = any(row.attainable.value for row in rows)
    gains = any(row.tuning_gain.value for row in rows)
    head = ["Backend", "Speedup, common cases", "Speedup, own cases"]
    head += ["Tuning gain"] if gains else []
    printed = any(row.utilisation_datasheet.value for row in rows)
    head += ["Utilisation", "at the largest case"]
    head += ["of the datasheet"] if printed else []
    head += ["Of attainable", "at the largest"] if floors else []
    head += ["Operators ≥ 80 %", "at the largest", "Passed"]
    cells = []
    for row in rows:
        line = [row.contestant.label, times(row.speedup_common), times(row.speedup)]
        line += [times(row.tuning_gain)] if gains else []
        line += [share(row.utilisation.value), share(row.utilisation_largest.value)]
        line += [share(row.utilisation_datasheet.value)] if printed else []
        line += [share(row.attainable.value), share(row.attainable_largest.value)] if floors else []
        good = f"{share(row.good_share)} of {row.utilisation.operators}" if row.utilisation.operators else "–"
        line += [good, share(row.good_share_largest)]
        line += [f"{share(row.pass_rate)} ({row.passed + row.suspicious}/{row.applicable})"]
        cells.append(line)
    return Table(title, head, cells, frozenset({"Backend"}))


def suite_tables(group: Group) -> list[Table]:
    """The suite's standings, then each category's."""
    tables = [standing_table("All operators", group.suite)]
    if len(group.categories) > 1:
        tables += [standing_table(category, rows) for category, rows in group.categories.items()]
    return tables


def duel_table(group: Group) -> Table:
    """Wins / ties / losses of the row against the column."""
    head = ["", *(who.label for who in group.contestants)]
    rows = []
    for first in group.contestants:
        row = [first.label]
        for second in group.contestants:
            duel = group.duels.get((first, second))
            row.append(f"{duel.wins} / {duel.ties} / {duel.losses}" if duel and duel.cases else "–")
        rows.append(row)
    return Table("Wins / ties / losses of the row against the column, by case", head, rows, frozenset({""}))


def operator_table(group: Group) -> Table:
    """One row per operator: everybody's mean speedup, and the best one's utilisation."""
    head = ["Operator", "Category", "Cases", *(who.label for who in group.contestants), "Utilisation of best", "Failed"]
    rows = []
    for row in group.operators:
        used = row.utilisations[row.best].value if row.best else None
        rows.append(
            [
                row.operator, row.category, str(row.cases),
                *(f"{row.speedups[who].value:.2f}×" if row.speedups[who].value else "–" for who in group.contestants),
                share(used), str(row.failures),
            ]
        )  # fmt: skip
    return Table("Speedup over PyTorch by operator", head, rows, frozenset({"Operator", "Category"}))


def fastest_table(group: Group) -> Table:
    """Microseconds of everybody at the largest case of each operator and dtype, the fastest, and kernels against PyTorch."""
    found = leads(group.view)
    everybody = [who for who in group.contestants if any(who in lead.median_us for lead in found)]
    head = ["Operator", "Dtype", "Largest case", *(f"{who.label} µs" for who in everybody)]
    head += ["Fastest", "Best kernel over PyTorch", "Utilisation"]
    rows = [
        [
            lead.operator, lead.dtype, params_text(lead.params),
            *(f"{lead.median_us[who]:.1f}" if who in lead.median_us else "–" for who in everybody),
            lead.fastest.label, "–" if lead.over_pytorch is None else f"{lead.over_pytorch:.2f}×", share(lead.utilisation),
        ]
        for lead in found
    ]  # fmt: skip
    counts = count_leads(found)
    note = (
        f"The best kernel takes at most {CLOSE:.2f} × the time of the fastest PyTorch on {counts.close} of {counts.compared}"
        f" operators, and reaches 80 % of the roofline on {counts.good} of {counts.rated} (geometric means over dtypes)."
    )
    text = frozenset({"Operator", "Dtype", "Largest case", "Fastest"})
    return Table("Who is fastest at the largest case", head, rows, text, note)


def group_tables(group: Group) -> list[Table]:
    """What every format shows below the operators; some may be empty."""
    kernels = not all(is_pytorch(who.backend) for who in group.contestants)
    return [*([fastest_table(group)] if kernels else []), below_table(group), accounting_table(group)]


def accounting_table(group: Group) -> Table:
    """Mean milliseconds per timed trial by step, and what was neither compiling, tuning nor the device's own work."""
    rows = accounts(group.view.records)
    steps = list(dict.fromkeys(step for row in rows for step in row.steps))

    def ms(value: float | None) -> str:
        return "–" if value is None else f"{value * 1e3:.1f}"

    head = ["Backend", "Trials", *steps, "device busy", "overhead", "overhead, median"]
    cells = [
        [
            row.backend, str(row.trials), *(ms(row.steps.get(step, 0.0)) for step in steps),
            ms(row.device_s), ms(row.overhead_s), ms(row.overhead_median_s),
        ]
        for row in rows
    ]  # fmt: skip
    return Table("Where the time went, ms per trial", head, cells, frozenset({"Backend"}))


def below_table(group: Group) -> Table:
    """Every operator and dtype of a DSL that stays below half of what its launch floor allows, over its grid."""
    head = ["Operator", "Dtype", "Backend", "Of attainable", "at the largest case", "Utilisation", "Speedup"]
    rows = [
        [row.operator, row.dtype, row.contestant.label, share(row.attainable), share(row.attainable_largest),
         share(row.utilisation), "–" if row.speedup is None else f"{row.speedup:.2f}×"]
        for row in shortfalls(group.view, group.contestants, group.peaks)
    ]  # fmt: skip
    return Table("Below half of the attainable", head, rows, frozenset({"Operator", "Dtype", "Backend"}))


def failure_table(title: str, troubles: Sequence[Trouble]) -> Table:
    """Records that did not pass, those that ended alike in one row."""
    head = ["Outcome", "Operator", "Dtype", "Backend", "Cases", "First case", "Reason"]
    rows = [[t.outcome, t.operator, t.dtype, t.who, str(t.cases), t.first, t.reason] for t in troubles]
    return Table(title, head, rows, frozenset(head) - {"Cases"})


def environment_rows(content: Content) -> list[tuple[str, str]]:
    """What the campaigns ran on, flat."""
    rows: list[tuple[str, str]] = []
    for campaign in content.campaigns:
        rows.append(("campaign", campaign.name))
        rows += [(name, value) for name, value in _flat("", campaign.environment) if not name.startswith("resumed")]
    return rows


def _flat(prefix: str, value: object) -> list[tuple[str, str]]:
    if isinstance(value, dict):
        pairs: list[tuple[str, str]] = []
        for key, item in value.items():
            pairs += _flat(f"{prefix}.{key}" if prefix else str(key), item)
        return pairs
    return [(prefix, str(value))]
