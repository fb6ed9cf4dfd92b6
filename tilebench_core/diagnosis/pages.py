"""Mechanism pages: one Markdown page per large gap, with observation and hypothesis apart."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilebench_core.diagnosis.derived import Quantity, Side, derive
from tilebench_core.diagnosis.experiments import Experiment, moved_grid
from tilebench_core.diagnosis.gaps import Evidence, Gap, gap_grid
from tilebench_core.diagnosis.mechanisms import Hypothesis, hypotheses
from tilebench_core.diagnosis.tables import Grid, markdown_grid
from tilebench_core.records import Record

__all__ = ["evidence_grid", "mechanism_page", "page_name", "write_pages"]


def evidence_grid(sides: Sequence[Side]) -> Grid:
    """All quantities of two sides; static ones are marked."""
    derived = [derive(side) for side in sides]
    rows = []
    for name in dict.fromkeys(name for found in derived for name in found):
        cells = [found.get(name, Quantity(None, missing="not collected")) for found in derived]
        static = "static: " if any(cell.static for cell in cells) else ""
        rows.append([f"{static}{name}", *(cell.text for cell in cells), _ratio(cells)])
    head = ["", *(side.record.backend for side in sides), "ratio"]
    return Grid("Evidence", head, rows)


def _ratio(cells: Sequence[Quantity]) -> str:
    values = [cell.value for cell in cells]
    if len(values) != 2 or not all(isinstance(value, (int, float)) and value for value in values):
        return ""
    return f"{float(values[0] or 0) / float(values[1] or 1):.2f}"


def page_name(gap: Gap) -> str:
    """The page's file name."""
    words = f"{gap.slow.operator}-{gap.slow.dtype}-{gap.slow.backend}-{gap.fast.backend}"
    return re.sub(r"[^A-Za-z0-9_-]+", "-", words) + ".md"


def mechanism_page(gap: Gap, evidence: Evidence, records: Sequence[Record], experiments: Sequence[Experiment]) -> str:
    """The page of one gap. `records` are the winners of the case, of everybody."""
    slow, fast = evidence.side(gap.slow), evidence.side(gap.fast)
    found = hypotheses(derive(slow), derive(fast))
    parts = [
        f"# {gap.slow.operator}, {gap.slow.dtype}: {gap.slow.backend} takes {gap.factor:.2f} times as long as {gap.fast.backend}"
    ]
    parts += ["## Case", _case(gap, records)]
    parts += ["## Evidence", _sources(slow, fast), markdown_grid(evidence_grid([slow, fast]))]
    parts += ["## Observation", _observation(gap, found)]
    parts += ["## Hypothesis", *_hypothesis(found)]
    parts += ["## Controlled experiments", *_experiments(gap, experiments, found)]
    parts += _hot_spots([slow, fast])
    return "\n\n".join(parts) + "\n"


def _case(gap: Gap, records: Sequence[Record]) -> str:
    case = ", ".join(f"{key}={value}" for key, value in gap.slow.params.items())
    rows = [
        [r.backend, r.mode, f"{r.median_us or 0:,.2f}", ", ".join(f"{k}={v}" for k, v in (r.config or {}).items())]
        for r in sorted(records, key=lambda r: r.median_us or 0)
    ]
    grid = Grid("", ["backend", "mode", "median, µs", "configuration"], rows)
    where = f"{gap.slow.device or 'unknown device'}, {gap.slow.clock} clock, {gap.slow.cache} cache"
    return f"`{case}` on {where}. Latencies are the campaign's.\n\n{markdown_grid(grid)}"


def _sources(slow: Side, fast: Side) -> str:
    lines = []
    for side in (slow, fast):
        profile, inspection = side.profile, side.inspection
        replay = dict(profile.job.settings or {}).get("replay", "unknown") if profile else ""
        counters = f"counters by Nsight Compute {profile.ncu}, {replay} replay" if profile else "no counters"
        code = f"code for {inspection['arch']}" if inspection else "no code"
        lines.append(f"- {side.record.backend}: {counters}; {code}")
    return (
        "\n".join(lines)
        + "\n\nCounts of the code are static. The profiler's durations are no latencies and are not shown."
    )


def _observation(gap: Gap, found: Sequence[Hypothesis]) -> str:
    first = (
        f"{gap.slow.backend}: {gap.slow.median_us or 0:,.2f} µs, {gap.fast.backend}: {gap.fast.median_us or 0:,.2f} µs."
    )
    return " ".join([first, *(hypothesis.observation for hypothesis in found)])


def _hypothesis(found: Sequence[Hypothesis]) -> list[str]:
    if not found:
        return ["None: no quantity that was collected separates the two sides enough to suggest one."]
    parts = []
    for number, hypothesis in enumerate(found[:4]):
        title = "Most separated" if number == 0 else "Alternative"
        parts.append(f"**{title}: {hypothesis.title}.** {hypothesis.text} *Against it:* {hypothesis.against}")
    return parts


def _experiments(gap: Gap, experiments: Sequence[Experiment], found: Sequence[Hypothesis]) -> list[str]:
    backends = {gap.slow.backend, gap.fast.backend}
    mine = [
        e for e in experiments if (e.operator, e.dtype) == (gap.slow.operator, gap.slow.dtype) and e.backend in backends
    ]
    parts = []
    for experiment in mine:
        parts += [f"**{experiment.title}**", markdown_grid(moved_grid(experiment)), experiment.verdict]
    if not mine and found:
        keys = ", ".join(f"`config.{key}`" for key in (gap.slow.config or {})) or "none"
        parts.append(f"None yet. To try: {found[0].experiment}. Keys of {gap.slow.backend}'s configuration: {keys}.")
    return parts or ["None yet."]


def _hot_spots(sides: Sequence[Side]) -> list[str]:
    parts: list[str] = []
    for side in sides:
        for launch in side.profile.launches if side.profile else ():
            if launch.hottest:
                lines = [
                    f"{spot['offset']:05x}  {spot['samples']:>6}  {spot['sass']}  {next(iter(spot['stalls']), '')}"
                    + (f"  // {Path(spot['file']).name}:{spot['line']}" if spot.get("file") else "")
                    for spot in launch.hottest
                ]
                parts.append(f"{side.record.backend}, {launch.name}:\n\n```\n" + "\n".join(lines) + "\n```")
    return ["## Hottest instructions", "Offset, samples, instruction, most frequent stall.", *parts] if parts else []


def write_pages(
    gaps: Sequence[Gap], evidence: Evidence, winners: Mapping[tuple[str, str, str], Record],
    experiments: Sequence[Experiment], folder: Path,
) -> list[Path]:  # fmt: skip
    """Write an index with the table of gaps and a page for each; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "README.md"]
    links = [
        f"- [{gap.slow.operator} {gap.slow.dtype}: {gap.slow.backend} and {gap.fast.backend}]({page_name(gap)})"
        for gap in gaps
    ]
    grid = gap_grid(gaps)
    written[0].write_text(f"# {grid.title}\n\n{markdown_grid(grid)}\n\n" + "\n".join(links) + "\n", encoding="utf-8")
    for gap in gaps:
        key = gap.slow.operator, gap.slow.dtype
        records = [record for (operator, dtype, _), record in winners.items() if (operator, dtype) == key]
        written.append(folder / page_name(gap))
        written[-1].write_text(mechanism_page(gap, evidence, records, experiments), encoding="utf-8")
    return written
