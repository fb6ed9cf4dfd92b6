"""Trajectories of the LLM track in MLflow: one run per trajectory and DSL, its rounds as the steps of its metrics."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tilebench_core.tracking.options import TrackingOptions, results_store
from tilebench_core.tracking.series import Step
from tilebench_core.tracking.store import CAMPAIGN_TAG, SERIES_TAG, open_store

__all__ = ["EXPERIMENT", "sync_llm"]

EXPERIMENT = "tilebench-llm"
_STATE = "mlflow-llm.json"


def sync_llm(campaign: Path, options: TrackingOptions) -> str:
    """Send the campaign's trajectories as they stand; runs that were sent before and changed since are replaced.

    Returns a line that says what happened. A tracking failure is part of it and costs nothing: everything is on disk.
    """
    from tilebench_core.llm.run import trajectories_of

    chosen = replace(results_store(campaign.parent, options), experiment=EXPERIMENT)
    state_path = campaign / _STATE
    state: dict[str, dict[str, dict[str, str]]] = (
        json.loads(state_path.read_text(encoding="utf-8")) if state_path.is_file() else {}
    )
    sent = state.setdefault(str(chosen.uri), {})
    found = trajectories_of(campaign)
    changed = 0
    try:
        with open_store(chosen) as store:
            for folder, trajectory in found:
                mark = _mark(folder / "journal.jsonl", campaign / "llm-report" / "report.md")
                for backend in trajectory.key["backends"]:
                    series = f"{folder.name}/{backend}"
                    before = sent.get(series)
                    if before is not None and before["mark"] == mark and store.exists(before["run"]):
                        continue
                    tags = {
                        **{name: str(trajectory.key[name]) for name in ("operator", "model", "condition")}, "backend": backend,
                        "end": trajectory.end.value if trajectory.end else "unfinished", CAMPAIGN_TAG: campaign.name,
                        SERIES_TAG: series,
                    }  # fmt: skip
                    with store.locked():
                        run = store.create(f"{trajectory.key['operator']} {backend} {trajectory.key['model']}", tags)
                        store.log(
                            run,
                            {**tags, "dtypes": " ".join(trajectory.key["dtypes"])},
                            list(_steps(trajectory, backend)),
                            _summary(trajectory, backend),
                        )
                        store.attach(run, folder / "journal.jsonl")
                        if (campaign / "llm-report").is_dir():
                            store.attach(run, campaign / "llm-report", "llm-report")
                        store.finish(run, good=trajectory.best(backend) is not None)
                        if before is not None and store.exists(before["run"]):
                            store.discard(before["run"])
                    sent[series] = {"run": run, "mark": mark}
                    changed += 1
    except Exception as error:  # whatever a store does, the trajectories are on disk and can be sent later
        state_path.write_text(json.dumps(state, indent=1), encoding="utf-8")
        later = f"`tilebench llm report {campaign.name} --sync` sends it later"
        return f"{chosen.uri}: not sent ({type(error).__name__}: {error}); {later}"
    state_path.write_text(json.dumps(state, indent=1), encoding="utf-8")
    return f"{chosen.uri}: {changed} runs sent, experiment {EXPERIMENT}"


def _mark(*paths: Path) -> str:
    """A hash of what a run shows: it is sent again when that changes."""
    hashed = hashlib.sha256()
    for path in paths:
        hashed.update(path.read_bytes() if path.is_file() else b"")
    return hashed.hexdigest()[:16]


def _steps(trajectory: object, backend: str) -> Iterator[Step]:
    """The rounds as metrics: what each brought, and what was spent up to it."""
    from tilebench_core.llm.rounds import Trajectory

    assert isinstance(trajectory, Trajectory)
    tokens, money, best, now = 0.0, 0.0, 0.0, int(time.time() * 1000)
    for each in trajectory.rounds:
        tokens, money = tokens + each.tokens.value, money + each.money.value
        attempt = each.attempts.get(backend)
        if backend not in each.backends:
            continue
        values = {"tokens": tokens, "cost_usd": money, "clean": float(attempt is not None and attempt.status.is_clean)}
        if attempt is not None:
            best = max(best, attempt.speedup or 0.0)
            known = {"speedup": attempt.speedup, "efficiency": attempt.efficiency, "lowest_share": attempt.lowest_share,
                     "geomean_us": attempt.geomean_us, "best_speedup": best, "cases_passed": float(attempt.passed)}  # fmt: skip
            values |= {name: value for name, value in known.items() if value is not None}
        yield from (Step(name, value, each.number, now) for name, value in values.items())


def _summary(trajectory: object, backend: str) -> dict[str, float]:
    from tilebench_core.llm.metrics import results_of
    from tilebench_core.llm.rounds import Trajectory

    assert isinstance(trajectory, Trajectory)
    (result,) = [result for result in results_of([trajectory]) if result.backend == backend]
    known = {"best_speedup": result.speedup, "best_efficiency": result.efficiency, "total_tokens": result.tokens.value,
             "total_cost_usd": result.money.value, "speedup_per_mtoken": result.per_mtoken,
             "speedup_per_mtoken_divided": result.per_mtoken_share}  # fmt: skip
    return {name: value for name, value in known.items() if value is not None}
