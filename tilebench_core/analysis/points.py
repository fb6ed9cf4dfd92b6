"""Records side by side: which of them may be put in a ratio, and with whom.

A **contestant** is a backend in one mode. A **point** is one case under one condition (device, clock, cache), with the
valid record of each contestant. Only PASSED records with a latency are valid: SUSPICIOUS ones are shown, never averaged.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from tilebench_core.outcomes import Outcome
from tilebench_core.records import Record

__all__ = [
    "Contestant",
    "Point",
    "View",
    "case_key",
    "geomean",
    "is_pytorch",
    "is_valid",
    "ratio",
    "valid_ratio",
    "view_of",
]


def is_pytorch(backend: str) -> bool:
    """True for PyTorch's own backends, eager and compiled: what a user has without writing a kernel."""
    return backend.startswith("torch")


class Contestant(NamedTuple):
    """Who is compared. `provider` is empty unless several providers ship a kernel for the same operator and backend."""

    backend: str
    mode: str = "default"
    provider: str = ""

    @property
    def label(self) -> str:
        """What tables and legends call it."""
        provider = f" [{self.provider}]" if self.provider else ""
        return f"{self.backend}{provider}{' (tuned)' if self.mode == 'tuned' else ''}"


@dataclass(frozen=True, eq=False)
class Point:
    """One case under one condition, with everyone's valid record."""

    operator: str
    category: str
    dtype: str
    index: int
    params: Mapping[str, Any]
    device: str
    clock: str
    cache: str
    valid: Mapping[Contestant, Record]

    def common(self, contestants: Sequence[Contestant]) -> bool:
        """True where everybody has a valid record, all of one precision class, all graph-timed or all eager."""
        records = [self.valid[who] for who in contestants if who in self.valid]
        return len(records) == len(contestants) and len({(r.precision, r.graph) for r in records}) <= 1


@dataclass(frozen=True, eq=False)
class View:
    """A campaign's records, ordered for comparison. `records` are the grid's records of all outcomes."""

    records: tuple[Record, ...]
    contestants: tuple[Contestant, ...]
    points: tuple[Point, ...]
    ambiguous: frozenset[str]

    def contestant(self, record: Record) -> Contestant:
        """Whom the record belongs to."""
        provider = (record.provider or "") if record.backend in self.ambiguous else ""
        return Contestant(record.backend, record.mode, provider)

    @cached_property
    def present(self) -> tuple[Contestant, ...]:
        """The contestants that have at least one valid record here."""
        found = {who for point in self.points for who in point.valid}
        return tuple(who for who in self.contestants if who in found)

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The devices that have at least one valid record."""
        return tuple(sorted({point.device for point in self.points}))

    @cached_property
    def conditions(self) -> tuple[tuple[str, str, str], ...]:
        """Every (device, clock, cache) that has valid records; they are never averaged together."""
        return tuple(sorted({(point.device, point.clock, point.cache) for point in self.points}))

    @cached_property
    def by_operator(self) -> dict[str, View]:
        """The part of each operator that has valid records, in one pass."""
        records: dict[str, list[Record]] = defaultdict(list)
        points: dict[str, list[Point]] = defaultdict(list)
        for record in self.records:
            records[record.operator].append(record)
        for point in self.points:
            points[point.operator].append(point)
        return {
            name: View(tuple(records[name]), self.contestants, tuple(points[name]), self.ambiguous)
            for name in sorted(points)
        }

    def under(self, device: str, clock: str, cache: str) -> View:
        """The part of this view under one condition; records that failed stay with their device."""
        return View(
            tuple(r for r in self.records if (r.device or device) == device and (r.clock or clock) == clock),
            self.contestants,
            tuple(p for p in self.points if (p.device, p.clock, p.cache) == (device, clock, cache)),
            self.ambiguous,
        )

    def only(self, category: str | None = None, operator: str | None = None, dtype: str | None = None) -> View:
        """The part of this view that belongs to a category, an operator or a dtype."""

        def wanted(item: Record | Point) -> bool:
            return (
                category in (None, item.category) and operator in (None, item.operator) and dtype in (None, item.dtype)
            )

        return View(
            tuple(filter(wanted, self.records)), self.contestants, tuple(filter(wanted, self.points)), self.ambiguous
        )


def geomean(values: Iterable[float]) -> float | None:
    """Geometric mean of positive finite values, or None of none."""
    logs = [math.log(value) for value in values if value > 0 and math.isfinite(value)]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def case_key(record: Record) -> str:
    """Text that is equal for records of the same case."""
    return json.dumps([record.case_kind, record.params], sort_keys=True, default=str)


def is_valid(record: Record) -> bool:
    """True where the record's latency may enter a ratio or a mean."""
    time = record.median_us
    return record.outcome is Outcome.PASSED and time is not None and 0 < time < math.inf and not record.interpreted


def ratio(slow: Record | None, fast: Record | None) -> float | None:
    """How many times faster `fast` is than `slow`; None unless both are valid, of one precision and timed alike."""
    return valid_ratio(slow, fast) if slow and fast and is_valid(slow) and is_valid(fast) else None


def valid_ratio(slow: Record | None, fast: Record | None) -> float | None:
    """The ratio of two records that are known to be valid, as those of a point are."""
    if slow is None or fast is None:
        return None
    alike = (
        slow.precision == fast.precision
        and slow.graph == fast.graph
        and slow.clock == fast.clock
        and slow.cache == fast.cache
        and slow.device == fast.device
    )
    if not alike:
        return None
    return slow.median_us / fast.median_us  # type: ignore[operator]  # both are valid: their medians are numbers


def _ambiguous(records: Iterable[Record]) -> frozenset[str]:
    """Backends for which one operator has kernels of several providers."""
    providers: dict[tuple[str, str], set[str]] = defaultdict(set)
    for record in records:
        if record.provider:
            providers[record.operator, record.backend].add(record.provider)
    return frozenset(backend for (_, backend), found in providers.items() if len(found) > 1)


def view_of(records: Iterable[Record]) -> View:
    """Put the grid's records of a campaign side by side."""
    grid = tuple(record for record in records if record.case_kind == "grid")
    ambiguous = _ambiguous(grid)
    empty = View(grid, (), (), ambiguous)
    groups: dict[tuple[str, ...], dict[Contestant, Record]] = defaultdict(dict)
    seen = set()
    for record in grid:
        who = empty.contestant(record)
        seen.add(who)
        if is_valid(record):
            condition = (record.device or "", record.clock or "", record.cache or "")
            groups[(record.operator, record.dtype, case_key(record), *condition)][who] = record
    points = []
    for (operator, dtype, _, device, clock, cache), valid in groups.items():
        first = next(iter(valid.values()))
        points.append(
            Point(operator, first.category, dtype, first.case_index, first.params, device, clock, cache, valid)
        )
    points.sort(key=lambda p: (p.operator, p.dtype, p.device, p.clock, p.cache, p.index))
    order = sorted(seen, key=lambda who: (who.backend != "torch", not is_pytorch(who.backend), who))
    return View(grid, tuple(order), tuple(points), ambiguous)
