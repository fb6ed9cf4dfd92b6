"""Controlled experiments: flip one switch of a configuration or a backend, everything else alike, and say what moved."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tilebench_core.diagnosis.derived import Quantity, Side, derive
from tilebench_core.diagnosis.profiles import Profile
from tilebench_core.diagnosis.tables import Grid
from tilebench_core.errors import RequestError
from tilebench_core.records import Record

__all__ = ["Experiment", "Variant", "conclude", "keep_experiment", "kept_experiments", "moved_grid", "variants_of"]

_FILE = "experiments.jsonl"
_MOVED = 0.02
"""A relative change below this is no movement: it is about what counters and latencies differ by between two runs."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One side of an experiment: a configuration and the options of the backend."""

    config: Mapping[str, Any]
    options: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What was flipped, and all quantities before and after. `switch` is "config.KEY" or "backends.NAME.OPTION"."""

    operator: str
    dtype: str
    backend: str
    params: Mapping[str, Any]
    switch: str
    before_value: Any
    after_value: Any
    config: Mapping[str, Any]
    before: Mapping[str, Quantity]
    after: Mapping[str, Quantity]
    device: str = ""
    missing: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What was flipped, in one line."""
        return f"{self.backend}: {self.switch} from {self.before_value} to {self.after_value}"

    @property
    def moved(self) -> list[str]:
        """Names of the quantities that differ by more than two per cent, or in their words."""
        return [name for name in self.before if name in self.after and _changed(self.before[name], self.after[name])]

    @property
    def verdict(self) -> str:
        """Generated words: what the latency did, and which quantities moved with it."""
        change = _change(self.before.get("latency"), self.after.get("latency"))
        others = [name for name in self.moved if name not in ("latency", "launch-bound share")]
        still = "Nothing else that was collected moved." if not others else f"Moved: {', '.join(others)}."
        missing = f" Not collected: {'; '.join(self.missing)}." if self.missing else ""
        return f"Latency {change or 'unknown'}. {still}{missing}"


def _changed(a: Quantity, b: Quantity) -> bool:
    if isinstance(a.value, (int, float)) and isinstance(b.value, (int, float)):
        return abs(b.value - a.value) > _MOVED * max(abs(a.value), abs(b.value))
    return a.value is not None and b.value is not None and a.value != b.value


def _change(a: Quantity | None, b: Quantity | None) -> str:
    if (
        a is None
        or b is None
        or not isinstance(a.value, (int, float))
        or not isinstance(b.value, (int, float))
        or not a.value
    ):
        return ""
    return f"{b.value / a.value - 1:+.1%}"


def moved_grid(experiment: Experiment) -> Grid:
    """What moved, then the rest."""
    names = [name for name in experiment.before if name in experiment.after]
    rows = []
    for name in sorted(names, key=lambda name: (name != "latency", name not in experiment.moved, names.index(name))):
        a, b = experiment.before[name], experiment.after[name]
        static = "static: " if a.static else ""
        change = _change(a, b) if name in experiment.moved else ""
        rows.append([f"{static}{name}", a.text, b.text, change or ("changed" if name in experiment.moved else "")])
    return Grid(experiment.title, ["", str(experiment.before_value), str(experiment.after_value), "change"], rows)


def variants_of(
    config: Mapping[str, Any], options: Mapping[str, Any], backend: str, switches: Mapping[str, Any]
) -> tuple[Variant, Variant, str, Any, Any]:
    """Before and after of the one switch in `switches`: its name, "config.KEY" or "backends.NAME.OPTION", and new value.

    Raises RequestError unless exactly one switch is flipped, the configuration has it, and its value is new.
    """
    if len(switches) != 1:
        raise RequestError(f"an experiment flips exactly one switch, got {', '.join(switches) or 'none'}")
    (switch, value), before = next(iter(switches.items())), Variant(config=dict(config), options=dict(options))
    kind, _, key = switch.partition(".")
    if kind == "config":
        if key not in config:
            raise RequestError(f"{switch}: the configuration has {', '.join(config) or 'no keys'}")
        old, after = config[key], replace(before, config={**config, key: value})
    else:
        name, _, key = key.partition(".")
        if name != backend:
            raise RequestError(f"{switch}: the experiment is on {backend}")
        if key not in options:
            raise RequestError(f"{switch}: the backend's options are {', '.join(options) or 'none'}")
        old, after = options[key], replace(before, options={**options, key: value})
    if old == value:
        raise RequestError(f"{switch}={value}: that is its value already; expected another")
    return before, after, switch, old, value


def conclude(
    record: Record, flipped: tuple[str, Any, Any], latencies_us: Sequence[float], profiles: Sequence[Profile | None],
    inspections: Sequence[Mapping[str, Any] | None], floor_us: float | None = None,
) -> Experiment:  # fmt: skip
    """Put everything that was collected before and after the flip into an Experiment; all sequences hold two items."""
    quantities = [
        derive(Side(replace(record, median_us=latency), profile, inspection, floor_us))
        for latency, profile, inspection in zip(latencies_us, profiles, inspections, strict=True)
    ]
    missing = [f"counters ({p.reason})" for p in profiles if p is not None and not p.verified]
    missing += ["counters"] if None in profiles else []
    missing += [f"code ({i['reason']})" for i in inspections if i is not None and i["reason"]]
    switch, old, new = flipped
    return Experiment(
        operator=record.operator, dtype=record.dtype, backend=record.backend, params=dict(record.params), switch=switch,
        before_value=old, after_value=new, config=dict(record.config or {}), before=quantities[0], after=quantities[1],
        device=record.device or "", missing=tuple(dict.fromkeys(missing)),
    )  # fmt: skip


def keep_experiment(folder: Path, experiment: Experiment) -> None:
    """Append to the experiments in `folder`, a campaign's diagnosis folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(experiment), default=str) + "\n")


def kept_experiments(folder: Path) -> list[Experiment]:
    """The last experiment of each switch and values, in their order; torn lines are passed over."""
    path = folder / _FILE
    found: dict[str, Experiment] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            values = json.loads(line)
            for side in ("before", "after"):
                values[side] = {name: Quantity(**quantity) for name, quantity in values[side].items()}
            values["missing"] = tuple(values["missing"])
            experiment = Experiment(**values)
        except (ValueError, TypeError, KeyError):  # a line that a crash left unfinished
            continue
        found[
            f"{experiment.operator} {experiment.dtype} {experiment.params} {experiment.config} {experiment.title}"
        ] = experiment
    return list(found.values())
