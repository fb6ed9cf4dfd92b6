"""A profile: the counters of one call of `run`, checked to be those of the kernels that the call launches."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilebench_core.diagnosis.capture import DRAIN_RANGE, RUN_RANGE
from tilebench_core.diagnosis.metrics import METRICS
from tilebench_core.diagnosis.selection import ProfileJob
from tilebench_core.errors import ConfigError

__all__ = ["Expected", "Launch", "Profile", "attribute", "profile_from_json", "profile_to_json"]

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One kernel launch as Nsight Compute saw it. A value that is None has its reason in `missing`."""

    name: str
    values: Mapping[str, float | None]
    missing: Mapping[str, str] = field(default_factory=dict)
    stalls: Mapping[str, int] = field(default_factory=dict)
    opcodes: Mapping[str, int] = field(default_factory=dict)
    hottest: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What an activity trace of a steady-state call showed: all its kernels, those of the backend itself, and of the drain.

    `own` are the names under which the backend knows its kernels; a binary may append a signature to them.
    """

    kernels: tuple[str, ...]
    others: Mapping[str, int] = field(default_factory=dict)
    own: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    device: str = ""

    @property
    def main(self) -> tuple[str, ...]:
        """The kernels that are profiled: the backend's own, or all where it names none."""
        return tuple(name for name in self.kernels if not self.own or any(name.startswith(own) for own in self.own))

    @property
    def auxiliary(self) -> dict[str, int]:
        """Kernels of libraries beside them, by name and count: listed, not profiled."""
        main = set(self.main)
        return dict(Counter(name for name in self.kernels if name not in main))


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The counters of one call, or why there are none. Only a verified profile holds launches.

    `left_bytes` is what the call left in the L2 cache to be written to DRAM, None where it was not drained.
    Durations are under the profiler, with one pass's overhead: they weigh launches against each other, and are no latency.
    """

    job: ProfileJob
    verified: bool
    reason: str | None = None
    launches: tuple[Launch, ...] = ()
    auxiliary: Mapping[str, int] = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)
    left_bytes: float | None = None
    ncu: str = ""
    device: str = ""
    started: str = ""
    seconds: float | None = None
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        if self.verified == bool(self.reason) or self.verified != bool(self.launches):
            raise ConfigError("a profile is verified and holds launches, or says why it is not")

    def total(self, name: str) -> float | None:
        """A metric of the whole call: a sum, or a mean over time; None if any launch lacks it."""
        metric = next(metric for metric in METRICS if metric.name == name)
        values = [launch.values.get(name) for launch in self.launches]
        present = [value for value in values if value is not None]
        if len(present) < len(values) or not present:
            return None
        if metric.additive:
            return sum(present)
        weights = [launch.values.get("duration_ns") or 0.0 for launch in self.launches]
        if len(present) == 1 or not all(weights):
            return present[0] if len(present) == 1 else None
        return sum(value * weight for value, weight in zip(present, weights, strict=True)) / sum(weights)

    @property
    def dram_bytes(self) -> float | None:
        """Bytes read from and written to DRAM on behalf of the call, what it left in the cache included."""
        read, written = self.total("dram_read_bytes"), self.total("dram_write_bytes")
        return None if read is None or written is None else read + written + (self.left_bytes or 0.0)

    @property
    def opcodes(self) -> dict[str, int]:
        """Executed warp instructions by opcode."""
        return dict(sum((Counter(launch.opcodes) for launch in self.launches), Counter()).most_common())

    @property
    def stalls(self) -> dict[str, int]:
        """Samples by stall reason."""
        return dict(sum((Counter(launch.stalls) for launch in self.launches), Counter()).most_common())


def attribute(
    job: ProfileJob, expected: Expected, profiled: Collection[str], drain: bool, actions: Sequence[Mapping[str, Any]]
) -> tuple[tuple[Launch, ...], float | None]:
    """The launches of `job` among the `actions` of a report, and the bytes that the drain behind them wrote.

    `profiled` are the kernel names that ncu was asked for, `drain` says whether there was one. Raises ValueError unless
    the range of the job holds exactly the kernels that were traced, by name and count, and every action of the report is
    in the range of some job.
    """
    stray = [a["mangled"] for a in actions if not any(r.startswith((RUN_RANGE, DRAIN_RANGE)) for r in a["ranges"])]
    if stray:
        raise ValueError(f"the report holds kernels outside every capture: {_counted(stray)}")
    mine = [action for action in actions if f"{RUN_RANGE}{job.key}" in action["ranges"]]
    wanted = Counter(name for name in expected.kernels if name in set(profiled))
    found = Counter(action["mangled"] for action in mine)
    if found != wanted:
        raise ValueError(f"wrong attribution: expected {_counted(wanted)}, the report holds {_counted(found)}")
    drained = [action for action in actions if f"{DRAIN_RANGE}{job.key}" in action["ranges"]]
    left = [action["values"].get("dram_write_bytes") for action in drained]
    wanted = Counter(name for name in expected.drain if drain)
    found = Counter(action["mangled"] for action in drained)
    if found != wanted:
        raise ValueError(
            f"wrong attribution of the drain: expected {_counted(wanted)}, the report holds {_counted(found)}"
        )
    names = ("name", "values", "missing", "stalls", "opcodes", "hottest")
    main = set(expected.main)
    launches = tuple(Launch(**{n: action[n] for n in names}) for action in mine if action["mangled"] in main)
    return launches, sum(v for v in left if v is not None) if left and None not in left else None


def _counted(names: Sequence[str] | Counter[str]) -> str:
    counts = Counter(names)
    return ", ".join(f"{count} × {name[:60]}" for name, count in sorted(counts.items())) or "no kernel"


def profile_to_json(profile: Profile) -> str:
    """One line of strict JSON."""
    values = dataclasses.asdict(profile)
    values["key"] = profile.job.key
    return json.dumps(values, allow_nan=False, separators=(",", ":"), default=str)


def profile_from_json(line: str) -> Profile:
    """Read one line; raises ConfigError for a newer schema, ValueError, TypeError or KeyError for anything else."""
    values = json.loads(line)
    if values.get("schema_version", 0) > SCHEMA_VERSION:
        raise ConfigError(
            f"profile of schema version {values['schema_version']}, this TileBench reads up to {SCHEMA_VERSION}"
        )
    known = {f.name for f in dataclasses.fields(Profile)}
    kept = {name: value for name, value in values.items() if name in known}
    kept["job"] = ProfileJob(**kept["job"])
    kept["launches"] = tuple(Launch(**launch) for launch in kept["launches"])
    return Profile(**kept)
