"""A campaign's records as what MLflow shows: one run per series, with the cases as steps of its metrics."""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tilebench_core.analysis.points import Contestant, View, case_key, geomean, is_valid, ratio, view_of
from tilebench_core.analysis.results import Results
from tilebench_core.analysis.standings import BASELINE, pass_rate
from tilebench_core.diagnosis.store import tracked_metrics
from tilebench_core.records import Record, record_to_json

__all__ = ["MAX_PARAM", "Series", "Step", "campaign_series", "clip"]

MAX_PARAM = 6000  # MLflow refuses longer values of parameters; the whole value is in the artifact params.json


@dataclass(frozen=True)
class Step:
    """One value of one metric. `step` is the index of the case."""

    metric: str
    value: float
    step: int
    timestamp_ms: int


@dataclass(frozen=True, kw_only=True)
class Series:
    """One run. `digest` changes when what was measured changes; `left_out` names values that no chart can show."""

    key: str
    name: str
    operator: str
    dtype: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    steps: Sequence[Step]
    summary: Mapping[str, float]
    records: Sequence[Record]
    any_passed: bool
    left_out: Sequence[str] = field(default_factory=tuple)
    digest: str = ""

    @property
    def lines(self) -> str:
        """The series' records as JSON lines."""
        return "".join(record_to_json(record) + "\n" for record in self.records)


def clip(text: str, limit: int = MAX_PARAM) -> str:
    """The text, or its beginning and the digest of the whole where MLflow would refuse its length."""
    if len(text) <= limit:
        return text
    end = f"… [{len(text)} characters, sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]}, whole in params.json]"
    return text[: limit - len(end)] + end


def _milliseconds(started: str | None) -> int:
    try:
        return int(datetime.fromisoformat((started or "").replace("Z", "+00:00")).timestamp() * 1000)
    except ValueError:
        return 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _of_cases(records: Sequence[Record], values: Sequence[Any]) -> str:
    """One value where all cases agree, else a mapping of case index to value."""
    texts = {_text(value) for value in values}
    if len(texts) == 1:
        return texts.pop()
    return _text({str(record.case_index): value for record, value in zip(records, values, strict=True)})


def _steps(records: Iterable[Record], baselines: Mapping[tuple[str, ...], Record]) -> tuple[list[Step], list[str]]:
    steps, left_out = [], []
    for record in records:
        if record.outcome.may_have_numbers:
            # MLflow pays for each one: what a plot over sizes shows, and no more. The rest is in records.jsonl.
            values = {
                "latency_us": record.median_us, "mean_us": record.mean_us, "p90_us": record.p90_us, "gbps": record.gbps,
                "tflops": record.tflops, "utilisation": record.utilisation,
                "speedup": ratio(baselines.get(_case(record)), record),
            }  # fmt: skip
            moment = _milliseconds(record.started)
            for name, value in values.items():
                if value is not None and math.isfinite(value):
                    steps.append(Step(name, float(value), record.case_index, moment))
                elif value is not None:
                    left_out.append(f"{name}@{record.case_index}={value}")
    return steps, left_out


def _case(record: Record) -> tuple[str, ...]:
    condition = (record.device or "", record.clock or "", record.cache or "", str(record.precision), str(record.graph))
    return (record.operator, record.dtype, case_key(record), *condition)


def _summary(records: Sequence[Record], steps: Sequence[Step], gains: Sequence[float]) -> dict[str, float]:
    def mean(metric: str, valid: set[int]) -> float | None:
        return geomean(step.value for step in steps if step.metric == metric and step.step in valid)

    valid = {record.case_index for record in records if is_valid(record)}
    rate, passed, _, applicable = pass_rate(records)
    values = {
        "geomean_latency_us": mean("latency_us", valid),
        "geomean_speedup": mean("speedup", valid),
        "geomean_utilisation": mean("utilisation", valid),
        "tuning_gain": geomean(gains),
        "pass_rate": rate,
        "cases_passed": float(passed),
        "cases_applicable": float(applicable),
    }
    return {name: value for name, value in values.items() if value is not None}


def _device_tags(campaign: Results) -> dict[str, str]:
    environment = campaign.environment
    commit = environment.get("git_commit") or environment.get("commit")
    tags = {f"version.{name}": version for name, version in sorted(campaign.versions.items())[:60]}
    named = {"git_commit": commit, "driver": campaign.driver, "host": environment.get("host")}
    return tags | {name: _text(value) for name, value in named.items() if value}


def campaign_series(campaign: Results, view: View | None = None) -> list[Series]:
    """All series of a campaign, in the order of their first record. A series holds the records of one device."""
    view = view or view_of(campaign.records)
    baselines: dict[tuple[str, ...], Record] = {}
    defaults: dict[tuple[Contestant, tuple[str, ...]], Record] = {}
    groups: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in campaign.records:
        groups[(*record.series, record.device or campaign.device)].append(record)
        if is_valid(record) and record.mode == "default":
            defaults[view.contestant(record), _case(record)] = record
            if record.backend == BASELINE.backend:
                baselines.setdefault(_case(record), record)
    common, counted = _device_tags(campaign), tracked_metrics(campaign.folder)
    return [_series(key, records, view, baselines, defaults, common, counted) for key, records in groups.items()]


def _series(
    key: tuple[str, ...],
    records: list[Record],
    view: View,
    baselines: Mapping[tuple[str, ...], Record],
    defaults: Mapping[tuple[Contestant, tuple[str, ...]], Record],
    common: Mapping[str, str],
    counted: Mapping[tuple[str, str, str, str], Mapping[str, float]],
) -> Series:
    operator, dtype, backend, provider, mode, device = key
    records.sort(key=lambda record: (record.case_kind, record.case_index))
    grid = [record for record in records if record.case_kind == "grid"]
    steps, left_out = _steps(grid, baselines)
    who = Contestant(backend, "default", view.contestant(records[0]).provider)
    gains = [ratio(defaults.get((who, _case(r))), r) for r in grid if mode == "tuned"]
    params = {
        "cases": _text([record.params for record in grid]),
        "config": _of_cases(records, [record.config for record in records]),
        **{
            name: _of_cases(records, [getattr(record, name) for record in records])
            for name in ("precision", "clock", "cache", "graph", "protocol", "config_source")
        },
    }
    tags = {
        "operator": operator, "category": records[0].category, "backend": backend, "provider": provider,
        "dtype": dtype, "mode": mode, "gpu": device, **common,
    }  # fmt: skip
    if left_out:
        tags["not_finite"] = ", ".join(left_out)[:5000]
    summary = _summary(grid, steps, [gain for gain in gains if gain is not None])
    summary.update(counted.get((operator, dtype, backend, mode), {}))
    series = Series(
        key="/".join(key), name=f"{operator} · {dtype} · {backend}{' · tuned' if mode == 'tuned' else ''}",
        operator=operator, dtype=dtype, params=params, tags=tags, steps=steps, summary=summary, records=records,
        any_passed=any(r.outcome.may_have_numbers or not r.outcome.is_applicable for r in records), left_out=left_out,
    )  # fmt: skip
    content = json.dumps([[(s.metric, s.value, s.step) for s in steps], params, summary], sort_keys=True)
    digest = hashlib.sha256((content + series.lines).encode()).hexdigest()[:16]
    object.__setattr__(series, "digest", digest)  # it is a function of the other fields
    return series
