"""The largest gaps between backends: at the largest case of each operator and dtype, from a campaign's records."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilebench_core.analysis.points import is_pytorch, ratio
from tilebench_core.analysis.results import Results
from tilebench_core.diagnosis.derived import Side
from tilebench_core.diagnosis.profiles import Profile
from tilebench_core.diagnosis.selection import largest_records
from tilebench_core.diagnosis.store import kept_inspections, kept_profiles
from tilebench_core.diagnosis.tables import Grid
from tilebench_core.records import Record

__all__ = ["Evidence", "Gap", "gap_grid", "largest_gaps", "load_evidence"]


@dataclass(frozen=True)
class Gap:
    """Two backends on the largest case of one operator and dtype; `factor` is the slower's latency over the faster's."""

    slow: Record
    fast: Record
    factor: float


def largest_gaps(records: Iterable[Record], count: int = 20, every_pair: bool = False) -> list[Gap]:
    """The `count` largest gaps, largest first: the widest pair of each operator and dtype, or `every_pair`.

    PyTorch's own backends are no party. Records that may not be put in a ratio (another clock, another precision) are no pair.
    """
    winners = largest_records(records)
    gaps = []
    for operator, dtype in dict.fromkeys((operator, dtype) for operator, dtype, _ in winners):
        rivals = [r for (o, d, b), r in winners.items() if (o, d) == (operator, dtype) and not is_pytorch(b)]
        found = []
        for slow, fast in itertools.permutations(rivals, 2):
            factor = ratio(slow, fast)
            if factor is not None and factor > 1 and slow.params == fast.params:
                found.append(Gap(slow, fast, factor))
        found.sort(key=lambda gap: -gap.factor)
        gaps += found if every_pair else found[:1]
    return sorted(gaps, key=lambda gap: -gap.factor)[:count]


@dataclass(frozen=True)
class Evidence:
    """What a campaign's folder holds beside its records: verified profiles, inspections, launch floors."""

    profiles: Mapping[tuple[str, str, str], Profile]
    inspections: Mapping[tuple[str, str, str], Mapping[str, Any]]
    floors: Mapping[str, float]

    def side(self, record: Record) -> Side:
        """All that is known about what `record` measured; code and counters of another case or configuration are not it."""
        key = record.operator, record.dtype, record.backend
        profile, inspection = self.profiles.get(key), self.inspections.get(key)
        if profile is not None and (profile.job.params != record.params or profile.job.config != (record.config or {})):
            profile = None
        of = dict(record.params), dict(record.config or {})
        if inspection is not None and (inspection["params"], inspection["config"]) != of:
            inspection = None
        return Side(record, profile, inspection, self.floors.get(record.backend, self.floors.get("*")))


def load_evidence(campaign: Path, results: Results, arch: str = "") -> Evidence:
    """Read what diagnosis kept; of several architectures' inspections those of `arch`, or the first kept.

    What was kept of another configuration than the one that wins now, or of another version of the kernel where that is known,
    is no evidence about the winner, and left out.
    """
    winners = largest_records(results.records)

    def won(key: tuple[str, str, str], config: Mapping[str, Any], kernel: str | None) -> bool:
        winner = winners.get(key)
        if winner is None:
            return True
        same_kernel = kernel == winner.kernel or None in (kernel, winner.kernel)
        return same_kernel and dict(winner.config or {}) == dict(config)

    profiles = {}
    for profile in kept_profiles(campaign).values():
        key = profile.job.operator, profile.job.dtype, profile.job.backend
        if profile.verified and won(key, profile.job.config, profile.job.kernel):
            profiles[key] = profile
    inspections: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for found in kept_inspections(campaign):
        key = found["operator"], found["dtype"], found["backend"]
        if found["kernels"] and arch in ("", found["arch"]) and won(key, found["config"], found.get("source")):
            inspections.setdefault(key, found)
    return Evidence(profiles, inspections, results.peaks.launch_floor_us)


def gap_grid(gaps: Sequence[Gap]) -> Grid:
    """The gaps as a table."""
    rows = []
    for gap in gaps:
        case = ", ".join(f"{key}={value}" for key, value in gap.slow.params.items())
        rows.append(
            [
                f"{gap.slow.operator} {gap.slow.dtype}", case, gap.slow.backend, f"{gap.slow.median_us or 0:,.2f}",
                gap.fast.backend, f"{gap.fast.median_us or 0:,.2f}", f"{gap.factor:.2f}×",
            ]
        )  # fmt: skip
    head = ["operator", "largest case", "slower", "µs", "faster", "µs", "gap"]
    return Grid(f"The {len(gaps)} largest gaps at the largest case", head, rows)
