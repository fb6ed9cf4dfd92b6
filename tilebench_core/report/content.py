"""What a report says, as values: every format shows the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tilebench_core.analysis.points import Contestant, View, is_pytorch, view_of
from tilebench_core.analysis.results import Peaks, Results, load_results
from tilebench_core.analysis.standings import Mean, Standing, mean_of, pass_rate, speedup, standings, utilisation
from tilebench_core.analysis.versions import former
from tilebench_core.analysis.wins import Duel, duels
from tilebench_core.outcomes import Outcome
from tilebench_core.records import Record

__all__ = ["Content", "Group", "OperatorRow", "Trouble", "content_of", "params_text"]


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Records that ended alike: the first case, how many there are, and why."""

    outcome: str
    operator: str
    dtype: str
    who: str
    cases: int
    first: str
    reason: str
    failure: bool


@dataclass(frozen=True, kw_only=True)
class OperatorRow:
    """One operator in one condition. `trend` is the best contestant's speedup over the cases of its first dtype."""

    operator: str
    category: str
    cases: int
    speedups: Mapping[Contestant, Mean]
    utilisations: Mapping[Contestant, Mean]
    best: Contestant | None
    trend: tuple[float, ...]
    pass_rate: float | None
    failures: int

    @property
    def best_speedup(self) -> float | None:
        """Mean speedup of the best contestant other than PyTorch's own."""
        return self.speedups[self.best].value if self.best else None


@dataclass(frozen=True, kw_only=True)
class Group:
    """All that was measured on one device with one clock and one state of the cache."""

    device: str
    clock: str
    cache: str
    view: View
    contestants: tuple[Contestant, ...]
    suite: Sequence[Standing]
    categories: Mapping[str, Sequence[Standing]]
    duels: Mapping[tuple[Contestant, Contestant], Duel]
    operators: Sequence[OperatorRow]
    peaks: Peaks

    @property
    def title(self) -> str:
        """The condition in words."""
        return " · ".join(filter(None, [self.device or "unknown device", self.clock, f"{self.cache} cache"]))

    @cached_property
    def best_of_backend(self) -> tuple[Contestant, ...]:
        """One contestant per backend: tuned where it was tuned, else default."""
        tuned = {(who.backend, who.provider) for who in self.contestants if who.mode == "tuned"}
        return tuple(who for who in self.contestants if who.mode == "tuned" or (who.backend, who.provider) not in tuned)


@dataclass(frozen=True, kw_only=True)
class Content:
    """A report over one or several campaigns."""

    campaigns: Sequence[Results]
    records: Sequence[Record]
    view: View
    groups: Sequence[Group]
    failures: Sequence[Trouble]
    inapplicable: Sequence[Trouble]
    noise_floor: float
    noise_floor_is_measured: bool
    peaks: Peaks = field(default_factory=Peaks)

    @property
    def title(self) -> str:
        """The campaigns' names."""
        return ", ".join(campaign.name for campaign in self.campaigns)

    @property
    def outcomes(self) -> dict[str, int]:
        """Number of records per outcome, in the order in which outcomes are defined."""
        counts: dict[str, int] = {}
        for outcome in Outcome:
            number = sum(record.outcome is outcome for record in self.records)
            if number:
                counts[outcome.value] = number
        return counts

    @property
    def notes(self) -> list[str]:
        """What a reader must know before citing a figure."""
        measured = "measured" if self.noise_floor_is_measured else "assumed: the campaign has not measured its own"
        notes = [f"Differences within {self.noise_floor:.2%} are ties (noise floor, {measured})."]
        for group in self.groups:
            notes.append(f"Utilisation on {group.device or 'the unknown device'}: {_ceilings_text(group.peaks)}.")
        notes = list(dict.fromkeys(notes))
        interpreted = sum(record.interpreted for record in self.records)
        if interpreted:
            notes.append(f"{interpreted} records were only verified in an interpreter and have no time.")
        suspicious = sum(record.outcome is Outcome.SUSPICIOUS for record in self.records)
        if suspicious:
            notes.append(f"{suspicious} records are SUSPICIOUS: shown, and left out of every mean and ratio.")
        eager = sum(record.graph is False and record.median_us is not None for record in self.records)
        if eager:
            notes.append(
                f"{eager} records were timed without a CUDA graph: never put in a ratio with graph-timed ones."
            )
        throttled = sum(bool(record.throttled) for record in self.records)
        if throttled:
            notes.append(f"{throttled} records were measured while the GPU throttled.")
        old = former(self.records)
        if old:
            kernels = ", ".join(sorted({f"{record.operator} in {record.backend}" for record in old}))
            notes.append(
                f"{len(old)} records are of kernels that have changed since, and are to be measured again: {kernels}."
            )
        changed = sorted({record.operator for record in self.records if record.operator_config_changed})
        if changed:
            notes.append(f"The operator config was changed on the command line for: {', '.join(changed)}.")
        notes += [
            f"{c.name}: {len(c.torn)} lines of records.jsonl could not be read." for c in self.campaigns if c.torn
        ]
        return notes


def _ceilings_text(peaks: Peaks) -> str:
    if not peaks.bandwidth_gbps:
        return "as recorded; this report does not know its ceilings"
    bandwidth = f"{peaks.bandwidth_gbps:,.0f} GB/s and its peaks"
    if peaks.source == "datasheet":
        return f"against the datasheet ({bandwidth}), which no kernel reaches: nobody has measured this device"
    beside = f"; the datasheet's {peaks.datasheet.bandwidth_gbps:,.0f} GB/s apart" if peaks.datasheet else ""
    return f"against measured ceilings ({bandwidth}{beside})"


def params_text(params: Mapping[str, Any]) -> str:
    """A case, or a configuration, as one line."""
    return ", ".join(f"{name}={value}" for name, value in params.items())


def _troubles(view: View, records: Sequence[Record]) -> list[Trouble]:
    """Of all records, edge cases and timing-free ones included: a wrong edge case must not look like none."""
    grouped: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    several = len({record.device for record in records}) > 1
    for record in records:
        if record.outcome is not Outcome.PASSED:
            who = view.contestant(record).label + (f" on {record.device}" if several else "")
            grouped[record.outcome.value, record.operator, record.dtype, who, record.reason or ""].append(record)
    troubles = [
        Trouble(
            outcome=outcome, operator=operator, dtype=dtype, who=who, cases=len(found),
            first=("edge case " if found[0].case_kind == "edge" else "") + params_text(found[0].params),
            reason=reason, failure=found[0].outcome.is_applicable,
        )
        for (outcome, operator, dtype, who, reason), found in grouped.items()
    ]  # fmt: skip
    return sorted(troubles, key=lambda t: (t.outcome == "SUSPICIOUS", t.outcome, t.operator, t.dtype, t.who))


def _inapplicable(troubles: Sequence[Trouble]) -> list[Trouble]:
    """What could not have passed here, one line per reason: operators are listed, dtypes and cases counted."""
    grouped: dict[tuple[str, str, str], list[Trouble]] = defaultdict(list)
    for trouble in troubles:
        grouped[trouble.outcome, trouble.who, trouble.reason].append(trouble)
    merged = []
    for (outcome, who, reason), found in grouped.items():
        operators = sorted({trouble.operator for trouble in found})
        merged.append(
            Trouble(
                outcome=outcome,
                operator=", ".join(operators),
                dtype="",
                who=who,
                reason=reason,
                cases=sum(trouble.cases for trouble in found),
                first="",
                failure=False,
            )
        )
    return merged


def _operator_row(operator: str, view: View, contestants: Sequence[Contestant]) -> OperatorRow:
    points = view.points
    speedups = {who: mean_of((operator, speedup(point, who)) for point in points) for who in contestants}
    used = {who: mean_of((operator, utilisation(point.valid.get(who))) for point in points) for who in contestants}
    rivals = [who for who in contestants if not is_pytorch(who.backend) and speedups[who].value]
    best = max(rivals, key=lambda who: speedups[who].value or 0.0, default=None)
    rate, passed, suspicious, applicable = pass_rate(view.records)
    trend: list[float] = []
    if best and points:
        values = [speedup(point, best) for point in points if point.dtype == points[0].dtype]
        trend = [value for value in values if value]
    return OperatorRow(
        operator=operator, category=view.records[0].category, cases=len(points), speedups=speedups, utilisations=used,
        best=best, trend=tuple(trend), pass_rate=rate, failures=applicable - passed - suspicious,
    )  # fmt: skip


def _group(view: View, condition: tuple[str, str, str], peaks: Peaks, noise_floor: float) -> Group:
    part = view.under(*condition)
    contestants = part.present
    categories = sorted({point.category for point in part.points})
    return Group(
        device=condition[0], clock=condition[1], cache=condition[2], view=part, contestants=contestants,
        suite=standings(part, contestants, peaks),
        categories={name: standings(part.only(category=name), contestants, peaks) for name in categories},
        duels=duels(part, contestants, noise_floor), peaks=peaks,
        operators=[_operator_row(name, own, contestants) for name, own in part.by_operator.items()],
    )  # fmt: skip


def content_of(folders: Sequence[Path]) -> Content:
    """Read the campaigns and work out everything that a report shows; RequestError if one holds no records."""
    campaigns = [load_results(folder) for folder in folders]
    records = [record for campaign in campaigns for record in campaign.records]
    view = view_of(records)
    peaks = next((c.peaks for c in campaigns if c.peaks.bandwidth_gbps or c.peaks.launch_floor_us), Peaks())
    noise_floor = max(campaign.noise_floor for campaign in campaigns)
    by_device = {record.device or "": campaign for campaign in campaigns for record in campaign.records}
    groups = []
    for condition in view.conditions:
        measured_on = by_device.get(condition[0])
        own = measured_on.peaks if measured_on and measured_on.device == condition[0] else Peaks()
        groups.append(_group(view, condition, own, noise_floor))
    troubles = _troubles(view, records)
    return Content(
        campaigns=campaigns, records=records, view=view, groups=groups,
        failures=[trouble for trouble in troubles if trouble.failure],
        inapplicable=_inapplicable([trouble for trouble in troubles if not trouble.failure]),
        noise_floor=noise_floor, noise_floor_is_measured=all(c.noise_floor_is_measured for c in campaigns), peaks=peaks,
    )  # fmt: skip
