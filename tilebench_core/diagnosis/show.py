"""Inspections on the terminal, as Markdown, and as files: every stage and the SASS with source lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilebench_core.diagnosis.inspection import Inspection
from tilebench_core.diagnosis.sass import Instruction
from tilebench_core.diagnosis.tables import inspection_grids, markdown_grid

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["code_text", "inspection_title", "markdown_inspections", "print_inspections", "stage_text", "write_code"]


def inspection_title(inspections: Sequence[Inspection]) -> str:
    """Operator, dtype and case."""
    target = inspections[0].target
    archs = ", ".join(dict.fromkeys(inspection.target.arch for inspection in inspections))
    return f"{target.operator} · {target.case.dtype} · {target.case.label} · {archs}"


def _notes(inspections: Sequence[Inspection]) -> list[str]:
    notes = []
    for inspection in inspections:
        who = f"{inspection.target.backend} {inspection.target.arch}"
        if inspection.reason is not None:
            notes.append(f"{who}: {inspection.reason}")
        else:
            config = ", ".join(f"{key}={value}" for key, value in inspection.config.items())
            notes.append(f"{who}: {config or 'no configuration'}; compiled in {inspection.compile_s or 0:.1f} s")
    return notes


def print_inspections(inspections: Sequence[Inspection], console: Console) -> None:
    """The tables of one operator and dtype."""
    from rich.table import Table

    console.print(inspection_title(inspections), style="bold", highlight=False)
    for note in _notes(inspections):
        console.print(note, style="dim", highlight=False)
    for grid in inspection_grids(inspections):
        table = Table(title=grid.title, title_justify="left")
        for index, name in enumerate(grid.head):
            table.add_column(name, justify="left" if index == 0 else "right", overflow="fold")
        for row in grid.rows:
            table.add_row(*row)
        console.print(table)


def markdown_inspections(inspections: Sequence[Inspection]) -> str:
    """The same as Markdown."""
    parts = [f"## {inspection_title(inspections)}", "\n".join(f"- {note}" for note in _notes(inspections))]
    for grid in inspection_grids(inspections):
        parts += [f"### {grid.title}", markdown_grid(grid)]
    return "\n\n".join(parts) + "\n"


def code_text(instructions: Iterable[Instruction]) -> str:
    """SASS with its addresses; a line that names the source stands before the instructions that came of it."""
    lines: list[str] = []
    before = None
    for instruction in instructions:
        if instruction.source is not None and instruction.source != before:
            path, number = instruction.source
            lines.append(f"    // {Path(path).name}:{number}")
        before = instruction.source
        lines.append(f"{instruction.address:05x}  {instruction.text}")
    return "\n".join(lines) + "\n"


def stage_text(inspection: Inspection, stage: str) -> str:
    """One stage of every kernel of an inspection: "sass", or a text of the compiler by its name; empty if it has none."""
    parts = []
    for kernel in inspection.kernels:
        text = code_text(kernel.listing.instructions) if stage == "sass" else kernel.texts.get(stage)
        if text:
            parts.append(f"// {inspection.target.backend} {inspection.target.arch} {kernel.name}, {stage}\n{text}")
    return "\n".join(parts)


def write_code(inspections: Sequence[Inspection], folder: Path) -> list[Path]:
    """Write every stage to `folder`/OPERATOR/DTYPE/BACKEND.ARCH[.N].KERNEL.STAGE and return the paths.

    N counts the configurations of one backend and architecture, where there are several.
    """
    written = []
    for inspection in inspections:
        target = inspection.target
        who = target.backend, target.arch, target.case
        alike = [i for i in inspections if (i.target.backend, i.target.arch, i.target.case) == who]
        place = folder / target.operator / target.case.dtype
        number = f".{alike.index(inspection)}" if len(alike) > 1 else ""
        for kernel in inspection.kernels:
            stages = {**kernel.texts, "sass": code_text(kernel.listing.instructions)}
            for stage, text in stages.items():
                path = place / f"{target.backend}.{target.arch}{number}.{kernel.name}.{stage}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
                written.append(path)
    return written
