"""The report's tables on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilebench_core.report.cells import (
    Table,
    duel_table,
    failure_table,
    group_tables,
    operator_table,
    standing_table,
)
from tilebench_core.report.content import Content

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

__all__ = ["print_report"]

MOST_FAILURES = 20
MOST_CHARACTERS = 160  # of a reason; the files hold the whole


def _rich(table: Table) -> RichTable:
    from rich import box
    from rich.markup import escape
    from rich.table import Table as RichTable

    shown = RichTable(title=escape(table.title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in table.head:
        shown.add_column(escape(name), justify="left" if name in table.text else "right", overflow="fold")
    for row in table.rows:
        shown.add_row(*(escape(cell if len(cell) <= MOST_CHARACTERS else cell[:MOST_CHARACTERS] + "…") for cell in row))
    return shown


def print_report(content: Content, console: Console) -> None:
    """Print failures, the suite's standings, the wins matrix and the operators of each condition."""
    outcomes = ", ".join(f"{number} {name}" for name, number in content.outcomes.items())
    console.print(f"{content.title}: {len(content.records)} records: {outcomes}", highlight=False, markup=False)
    for note in content.notes:
        console.print(f"· {note}", highlight=False, markup=False)
    if content.failures:
        console.print(_rich(failure_table("Failures", content.failures[:MOST_FAILURES])))
        if len(content.failures) > MOST_FAILURES:
            console.print(f"… and {len(content.failures) - MOST_FAILURES} more in the report's files")
    for group in content.groups:
        console.print(_rich(standing_table(group.title, group.suite)))
        console.print(_rich(duel_table(group)))
        console.print(_rich(operator_table(group)))
        for table in filter(lambda table: table.rows, group_tables(group)):
            console.print(_rich(table))
            if table.note:
                console.print(table.note, highlight=False, markup=False)
