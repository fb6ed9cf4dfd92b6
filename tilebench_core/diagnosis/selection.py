"""Which case is diagnosed, and which configuration: the largest case that was measured, and who won it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tilebench_core.analysis.points import is_valid
from tilebench_core.analysis.versions import without_former
from tilebench_core.records import Record

__all__ = ["ProfileJob", "job_of", "largest_records"]

Key = tuple[str, str, str]


def largest_records(records: Iterable[Record]) -> dict[Key, Record]:
    """The fastest valid of the `current` records of each (operator, dtype, backend), on the largest case of operator and dtype.

    The largest case is the last of the grid among the valid records of anybody: every swept parameter at its maximum.
    A backend without a valid record there is left out. Where a campaign was resumed after a kernel had been changed, records
    of its former source don't count: their configurations may mean nothing to the present one.
    """
    valid = [r for r in without_former(list(records)) if r.case_kind == "grid" and is_valid(r)]
    last: dict[tuple[str, str], int] = {}
    for record in valid:
        key = record.operator, record.dtype
        last[key] = max(last.get(key, 0), record.case_index)
    chosen: dict[Key, Record] = {}
    for record in valid:
        if record.case_index != last[record.operator, record.dtype]:
            continue
        rival = chosen.get((record.operator, record.dtype, record.backend))
        if rival is None or (record.median_us or 0.0) < (rival.median_us or 0.0):
            chosen[record.operator, record.dtype, record.backend] = record
    return chosen


@dataclass(frozen=True, kw_only=True, eq=False)  # its mappings have no hash: a job is itself, `key` says what is alike
class ProfileJob:
    """One capture: a kernel's `run` on one case with one configuration. Latency and work come from the campaign's record, and so
    does `kernel`, the hash of its source, which older records lack.

    `settings` is everything else that changes what is read: the set of metrics, the kind of replay.
    """

    operator: str
    dtype: str
    backend: str
    provider: str | None
    mode: str
    params: Mapping[str, Any]
    case_index: int
    config: Mapping[str, Any]
    precision: str
    latency_us: float | None = None
    compulsory_bytes: float | None = None
    flops: float | None = None
    options: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] | None = None
    kernel: str | None = None

    @property
    def key(self) -> str:
        """A hash of all that can change the counters; a job with a verified profile of this key is not run again."""
        names = ("operator", "dtype", "backend", "provider", "params", "config", "precision", "options", "settings")
        values = [getattr(self, name) for name in names]
        if self.kernel is not None:
            values.append(self.kernel)
        content = json.dumps(values, sort_keys=True, default=str)
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.operator} {self.dtype} {self.backend}"

    def as_json(self) -> dict[str, Any]:
        """A JSON-able mapping; `ProfileJob(**mapping)` is the way back."""
        return asdict(self)


def job_of(record: Record, settings: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> ProfileJob:
    """The job that profiles what `record` measured."""
    return ProfileJob(
        operator=record.operator, dtype=record.dtype, backend=record.backend, provider=record.provider,
        mode=record.mode, params=dict(record.params), case_index=record.case_index, config=dict(record.config or {}),
        precision=record.precision or record.dtype, latency_us=record.median_us, compulsory_bytes=record.bytes,
        flops=record.flops, options=dict(options or {}), settings=dict(settings), kernel=record.kernel,
    )  # fmt: skip
