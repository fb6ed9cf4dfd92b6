"""The diagnosis of each operator, where a campaign's folder holds some: evidence, hot code, links to full listings."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilebench_core.analysis.results import Results
from tilebench_core.diagnosis.derived import Side
from tilebench_core.diagnosis.gaps import load_evidence
from tilebench_core.diagnosis.pages import evidence_grid
from tilebench_core.diagnosis.selection import largest_records
from tilebench_core.diagnosis.store import FOLDER
from tilebench_core.report.cells import Table

__all__ = ["Diagnosis", "Excerpt", "Link", "diagnoses"]

_CONTEXT = 3
_SPOTS = 3


@dataclass(frozen=True)
class Excerpt:
    """Instructions around the hottest ones of one kernel, as text."""

    title: str
    text: str


@dataclass(frozen=True)
class Link:
    """A file of the diagnosis, by its path from the report."""

    title: str
    href: str


@dataclass(frozen=True)
class Diagnosis:
    """What is known of one operator and dtype at its largest case."""

    operator: str
    dtype: str
    case: str
    evidence: Table
    excerpts: Sequence[Excerpt]
    links: Sequence[Link]


def diagnoses(campaigns: Sequence[Results], out: Path | None = None) -> list[Diagnosis]:
    """One entry per operator and dtype that has a profile or an inspection; links are relative to `out`, the report's folder."""
    return [found for campaign in campaigns for found in _of_campaign(campaign, out)]


def _of_campaign(campaign: Results, out: Path | None) -> Iterator[Diagnosis]:
    if not (campaign.folder / FOLDER).is_dir():
        return
    evidence = load_evidence(campaign.folder, campaign)
    winners = largest_records(campaign.records)
    for operator, dtype in dict.fromkeys((operator, dtype) for operator, dtype, _ in winners):
        sides = [evidence.side(r) for (o, d, _), r in winners.items() if (o, d) == (operator, dtype)]
        sides = [side for side in sides if side.profile is not None or side.inspection is not None]
        if not sides:
            continue
        grid = evidence_grid(sides)
        keep = len(grid.head) if len(sides) == 2 else len(grid.head) - 1  # a ratio needs two sides
        table = Table(grid.title, grid.head[:keep], [row[:keep] for row in grid.rows], frozenset({""}))
        case = ", ".join(f"{key}={value}" for key, value in sides[0].record.params.items())
        excerpts = [excerpt for side in sides for excerpt in _excerpts(side, campaign.folder)]
        yield Diagnosis(operator, dtype, case, table, excerpts, _links(campaign.folder, operator, dtype, out))


def _listings(folder: Path, operator: str, dtype: str) -> Path:
    return folder / FOLDER / "code" / operator / dtype


def _excerpts(side: Side, folder: Path) -> Iterator[Excerpt]:
    if side.profile is None:
        return
    place = _listings(folder, side.record.operator, side.record.dtype)
    arch = str((side.inspection or {}).get("arch", ""))
    for launch in side.profile.launches:
        if launch.hottest:
            path = place / f"{side.record.backend}.{arch}.{launch.name}.sass"
            yield Excerpt(f"{side.record.backend}, {launch.name}", _hot_text(launch.hottest, path))


def _hot_text(spots: Sequence[Mapping[str, Any]], listing: Path) -> str:
    """The hottest instructions with their samples; between others where the kept listing is of the same code."""
    code = _code(listing)
    hot = {int(spot["offset"]): spot for spot in spots}
    if not all(_alike(code.get(offset, ""), str(spot["sass"])) for offset, spot in hot.items()):
        code = {}
    shown: set[int] = set(hot)
    if code:
        chosen = sorted(hot, key=lambda offset: -hot[offset]["samples"])[:_SPOTS]
        shown = {at for offset in chosen for at in range(offset - 16 * _CONTEXT, offset + 16 * _CONTEXT + 1, 16)}
    lines, before = [], None
    for offset in sorted(shown & (set(code) | set(hot))):
        if before is not None and offset > before + 16:
            lines.append("…")
        before = offset
        spot = hot.get(offset)
        text = code.get(offset) or str(hot[offset]["sass"])
        source = f"  // {Path(spot['file']).name}:{spot['line']}" if spot and spot.get("file") else ""
        stall = f"  {next(iter(spot['stalls']), '')}" if spot else ""
        lines.append(f"{offset:05x}  {spot['samples'] if spot else '':>6}  {text}{stall}{source}")
    return "\n".join(lines)


def _code(listing: Path) -> dict[int, str]:
    if not listing.is_file():
        return {}
    found = (re.match(r"([0-9a-f]{5,})  (.*)", line) for line in listing.read_text(encoding="utf-8").splitlines())
    return {int(match[1], 16): match[2] for match in found if match is not None}


def _alike(kept: str, profiled: str) -> bool:
    """Whether two disassemblers printed the same opcode: operands are written differently by different versions."""
    opcodes = [re.sub(r"^@!?U?P\w+\s+", "", text.strip()).split(" ")[0] for text in (kept, profiled)]
    return opcodes[0] == opcodes[1] != ""


def _links(folder: Path, operator: str, dtype: str, out: Path | None) -> list[Link]:
    place = _listings(folder, operator, dtype)
    files = sorted(place.iterdir()) if place.is_dir() else []
    files += sorted((folder / FOLDER / "pages").glob(f"{operator}-{dtype}-*.md"))
    base = out if out is not None else folder / "report"
    return [Link(path.name, Path(os.path.relpath(path.resolve(), base.resolve())).as_posix()) for path in files]
