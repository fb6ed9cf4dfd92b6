"""The report as Markdown."""

from __future__ import annotations

from tilebench_core.report.cells import (
    Table,
    duel_table,
    environment_rows,
    failure_table,
    group_tables,
    operator_table,
    suite_tables,
)
from tilebench_core.report.content import Content
from tilebench_core.report.diagnosis import diagnoses

__all__ = ["markdown_report", "markdown_table"]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def markdown_table(table: Table) -> str:
    """The table in GitHub's dialect."""
    lines = ["| " + " | ".join(map(_cell, table.head)) + " |"]
    lines.append("|" + "|".join("---" if name in table.text else "--:" for name in table.head) + "|")
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in table.rows]
    return "\n".join(lines)


def markdown_report(content: Content) -> str:
    """The whole report: failures first, then each condition's summary and operators, then the environment."""
    outcomes = ", ".join(f"{number} {name}" for name, number in content.outcomes.items())
    parts = [f"# TileBench: {content.title}", f"{len(content.records)} records: {outcomes}."]
    parts += [f"- {note}" for note in content.notes]
    parts.append("## Failures")
    parts.append(markdown_table(failure_table("", content.failures)) if content.failures else "None.")
    for group in content.groups:
        parts.append(f"## {group.title}")
        for table in suite_tables(group):
            parts += [f"### {table.title}", markdown_table(table)]
        for table in (duel_table(group), operator_table(group), *group_tables(group)):
            parts += [
                f"### {table.title}",
                *filter(None, [table.note]),
                markdown_table(table) if table.rows else "None.",
            ]
    diagnosed = diagnoses(content.campaigns)
    parts += ["## Diagnosis at the largest cases"] if diagnosed else []
    for found in diagnosed:
        parts += [f"### {found.operator}, {found.dtype}: {found.case}", markdown_table(found.evidence)]
    if content.inapplicable:
        parts += ["## Not applicable here", markdown_table(failure_table("", content.inapplicable))]
    rows = [[f"`{name}`", value] for name, value in environment_rows(content)]
    parts += ["## Environment", markdown_table(Table("", ["What", "Value"], rows, frozenset({"What", "Value"})))]
    return "\n\n".join(parts).replace("\n\n- ", "\n- ") + "\n"
