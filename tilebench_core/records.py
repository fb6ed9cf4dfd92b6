"""What is kept: one Record per trial, as one strict JSON line in `records.jsonl`.

A missing value is null, never 0. A line that a crash left unfinished is set aside and reported, never fatal.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tilebench_core.errors import ConfigError, RequestError
from tilebench_core.outcomes import Outcome

__all__ = [
    "MODES",
    "SCHEMA_VERSION",
    "Record",
    "RecordReader",
    "RecordWriter",
    "latest",
    "record_from_json",
    "record_schema",
    "record_to_json",
]

SCHEMA_VERSION = 1
MODES = ("default", "tuned")


@dataclass(frozen=True, kw_only=True)
class Record:
    """What happened to one case on one backend in one mode.

    Times are microseconds of device work per call (`cpu` clock: of wall time) unless the name says seconds. `median_us`
    and its siblings are statistics of `samples_us`, the busy times of the timed launches; `span_us` and `gap_us` are
    medians of first start to last end, and of the idle time in between. `roofline_us` is null where the device's
    ceilings are unknown. `seconds` is the wall time of each step, a step that backends share in equal parts; `device_s`
    is how much of it the device was busy. `kernel` is a hash of the kernel's source and of what it imports of its own
    package: records of one kernel with the same hash are of the same code. `series` is everything but the case: what one
    line of a plot shows.
    """

    trial_id: str
    operator: str
    category: str
    dtype: str
    params: Mapping[str, Any]
    backend: str
    provider: str | None
    mode: str
    outcome: Outcome
    schema_version: int = SCHEMA_VERSION
    reason: str | None = None
    check: str | None = None
    case_kind: str = "grid"
    case_index: int = 0
    kernel: str | None = None
    config: Mapping[str, Any] | None = None
    config_source: str | None = None
    operator_config_changed: bool = False
    precision: str | None = None
    interpreted: bool = False
    clock: str | None = None
    cache: str | None = None
    graph: bool | None = None
    graph_reason: str | None = None
    protocol: str | None = None
    stop_reason: str | None = None
    samples_us: tuple[float, ...] | None = None
    median_us: float | None = None
    mean_us: float | None = None
    p10_us: float | None = None
    p90_us: float | None = None
    min_us: float | None = None
    iqr_rel: float | None = None
    outliers: tuple[int, ...] | None = None
    bimodal: bool | None = None
    span_us: float | None = None
    gap_us: float | None = None
    activities: int | None = None
    calls_per_sample: int | None = None
    flops: float | None = None
    bytes: float | None = None
    roofline_us: float | None = None
    compile_s: float | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    spill_bytes: int | None = None
    launches: int | None = None
    peak_bytes: int | None = None
    max_abs_err: float | None = None
    max_rel_err: float | None = None
    worst: str | None = None
    failing_share: float | None = None
    device: str | None = None
    device_state: Mapping[str, Any] | None = None
    throttled: bool | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    device_s: float | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    started: str | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ConfigError(f"mode {self.mode!r}; expected one of {', '.join(MODES)}")
        if self.median_us is not None and not Outcome(self.outcome).may_have_numbers:
            raise ConfigError(f"a record that is {self.outcome.value} cannot hold a latency")
        if not Outcome(self.outcome).may_have_numbers and not self.reason:
            raise ConfigError(f"a record that is {self.outcome.value} must say why")

    @property
    def series(self) -> tuple[str, str, str, str, str]:
        """(operator, dtype, backend, provider, mode)."""
        return self.operator, self.dtype, self.backend, self.provider or "", self.mode

    @property
    def gbps(self) -> float | None:
        """Compulsory bytes over the median time, in GB/s."""
        return self.bytes / self.median_us / 1e3 if self.median_us and self.bytes else None

    @property
    def tflops(self) -> float | None:
        """Operations over the median time, in TFLOP/s (or TOP/s)."""
        return self.flops / self.median_us / 1e6 if self.median_us and self.flops else None

    @property
    def utilisation(self) -> float | None:
        """Roofline time over measured time, never clipped."""
        return self.roofline_us / self.median_us if self.median_us and self.roofline_us else None


_FIELDS = {f.name for f in dataclasses.fields(Record)}


def _strict(value: Any) -> Any:
    """Replace what JSON has no word for: NaN and infinities become null inside numbers that are optional anyway."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return value


def record_to_json(record: Record) -> str:
    """Return the record as one line of strict JSON."""
    values = {name: getattr(record, name) for name in sorted(_FIELDS)}
    values["outcome"] = record.outcome.value
    try:
        return json.dumps(values, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_strict(values), allow_nan=False, separators=(",", ":"))


def record_from_json(line: str) -> Record:
    """Read one line. Keys of a newer minor version are ignored; a newer schema version raises ConfigError."""
    values = json.loads(line)
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    if values.get("schema_version", 0) > SCHEMA_VERSION:
        raise ConfigError(
            f"record of schema version {values['schema_version']}, this TileBench reads up to {SCHEMA_VERSION}; upgrade tilebench"
        )
    known = {name: value for name, value in values.items() if name in _FIELDS}
    known["outcome"] = Outcome(known["outcome"])
    for name in ("samples_us", "outliers"):
        if known.get(name) is not None:
            known[name] = tuple(known[name])
    return Record(**known)


def record_schema() -> dict[str, Any]:
    """The JSON Schema of a record, generated from its type."""
    from pydantic import TypeAdapter

    schema = TypeAdapter(Record).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "TileBench record", **schema}


class RecordWriter:
    """Appends records to a campaign's file; each is on its way to the disk when `append` returns."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without a buffer each record is one write at the end of the file, so that jobs that share it do not mix lines.
        self._file: IO[bytes] = path.open("ab", buffering=0)
        if self._file.tell() > 0:
            with path.open("rb") as existing:
                existing.seek(-1, os.SEEK_END)
                if existing.read(1) != b"\n":  # a crash in mid-write: keep the torn line apart from the next record
                    self._file.write(b"\n")

    def append(self, record: Record) -> None:
        """Append one record."""
        self._file.write(record_to_json(record).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass
class RecordReader:
    """Reads a campaign's records. `torn` collects (line number, reason) of lines that are no records."""

    path: Path
    torn: list[tuple[int, str]] = field(default_factory=list)

    def __iter__(self) -> Iterator[Record]:
        if not self.path.is_file():
            raise RequestError(f"{self.path}: no such file; expected the records of a campaign")
        import gzip

        opened = gzip.open(self.path) if self.path.suffix == ".gz" else self.path.open("rb")  # noqa: SIM115 (closed below)
        with opened as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    yield record_from_json(line.decode())
                except ConfigError:
                    raise
                except (ValueError, KeyError, TypeError) as error:
                    self.torn.append((number, f"{type(error).__name__}: {error}"))


def latest(records: Iterable[Record]) -> list[Record]:
    """Keep the last record of each trial: a trial that was run again replaces its earlier end."""
    by_trial: dict[str, Record] = {}
    for record in records:
        by_trial.pop(record.trial_id, None)
        by_trial[record.trial_id] = record
    return list(by_trial.values())
