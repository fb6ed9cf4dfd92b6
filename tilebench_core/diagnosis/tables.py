"""Inspections as tables: quantities in rows, kernels side by side in columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilebench_core.diagnosis.code import KernelCode
from tilebench_core.diagnosis.families import FAMILIES
from tilebench_core.diagnosis.inspection import Inspection

__all__ = ["Grid", "column_titles", "family_grid", "inspection_grids", "markdown_grid", "resource_grid"]


@dataclass(frozen=True)
class Grid:
    """A table of text. The first column holds words, the others numbers."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


Column = tuple[Inspection, KernelCode]


def _columns(inspections: Sequence[Inspection]) -> list[Column]:
    return [(inspection, kernel) for inspection in inspections for kernel in inspection.kernels]


def column_titles(inspections: Sequence[Inspection]) -> list[str]:
    """One title per kernel: the backend, and of architecture, configuration and kernel what tells the columns apart."""
    columns = _columns(inspections)
    several_archs = len({inspection.target.arch for inspection, _ in columns}) > 1
    titles = []
    for inspection, kernel in columns:
        rivals = [other for other, _ in columns if other.target.backend == inspection.target.backend]
        differing = [
            f"{key}={value}" for key, value in inspection.config.items()
            if len({repr(other.config.get(key)) for other in rivals}) > 1
        ]  # fmt: skip
        words = [inspection.target.backend, inspection.target.arch if several_archs else "", *differing]
        words.append(kernel.name if len(inspection.kernels) > 1 else "")
        titles.append(" ".join(filter(None, words)))
    return titles


def _number(value: Any) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


_RESOURCES: tuple[tuple[str, Callable[[KernelCode], Any]], ...] = (
    ("launches in one call", lambda k: k.launches),
    ("threads per block", lambda k: k.threads),
    ("registers per thread", lambda k: k.registers),
    ("shared memory, static, bytes", lambda k: k.static_shared_bytes),
    ("shared memory, dynamic, bytes", lambda k: k.dynamic_shared_bytes),
    ("stack frame, bytes per thread", lambda k: k.stack_bytes),
    ("local memory instructions (spills)", lambda k: k.spills),
    ("barriers", lambda k: k.barriers),
    ("code, bytes", lambda k: k.code_bytes),
    ("instructions", lambda k: k.instructions),
)


def resource_grid(inspections: Sequence[Inspection]) -> Grid:
    """What the kernels use, by their binaries."""
    columns = _columns(inspections)
    rows = [[name, *(_number(read(kernel)) for _, kernel in columns)] for name, read in _RESOURCES]
    return Grid("Resources", ["", *column_titles(inspections)], rows)


def family_grid(inspections: Sequence[Inspection]) -> Grid:
    """Static instruction counts by family, memory instructions by width below their family, unnamed opcodes at the end."""
    kernels = [kernel for _, kernel in _columns(inspections)]
    rows = []
    for family in FAMILIES:
        if any(kernel.families.get(family) for kernel in kernels):
            rows.append([family, *(_number(kernel.families.get(family, 0)) for kernel in kernels)])
    for width in sorted({width for kernel in kernels for width in kernel.widths}):
        rows.append([f"· {width}", *(_number(kernel.widths.get(width, 0)) for kernel in kernels)])
    for opcode in sorted({opcode for kernel in kernels for opcode in kernel.unnamed}):
        rows.append([f"other: {opcode}", *(_number(kernel.unnamed.get(opcode, 0)) for kernel in kernels)])
    return Grid("Instructions in the code (static counts)", ["", *column_titles(inspections)], rows)


def inspection_grids(inspections: Sequence[Inspection]) -> list[Grid]:
    """All tables of one operator and dtype; none where nothing compiled."""
    return [resource_grid(inspections), family_grid(inspections)] if _columns(inspections) else []


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def markdown_grid(grid: Grid) -> str:
    """The table in GitHub's dialect."""
    lines = ["| " + " | ".join(_cell(cell) for cell in grid.head) + " |", "|---" + "|--:" * (len(grid.head) - 1) + "|"]
    lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in grid.rows]
    return "\n".join(lines)
