"""Which configuration a tuned trial runs with: found again, replayed, or searched for."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tilebench_core.environment import now
from tilebench_core.errors import LaunchError, RequestError
from tilebench_core.kernel import Config
from tilebench_core.packs import Operator
from tilebench_core.tune.journal import Candidate, Journal, candidate_key
from tilebench_core.tune.search import search
from tilebench_core.tune.store import Winner, WinnerStore, winner_key
from tilebench_core.verify import PreparedCase
from tilebench_core.worker.messages import Emitter, TaskMessage

if TYPE_CHECKING:
    from tilebench_core.worker.case import Run
    from tilebench_core.worker.session import Session

__all__ = ["candidates_of", "tuned_config"]


def candidates_of(default: Config, space: Sequence[Config]) -> list[Config]:
    """The default configuration first, then the space in its own order, each once."""
    unique = {candidate_key(config): config for config in [default, *space]}
    return list(unique.values())


def tuned_config(
    session: Session, operator: Operator, task: TaskMessage, run: Run, prepared: PreparedCase, emitter: Emitter
) -> tuple[Config, str]:
    """Return the configuration for a tuned trial and where it came from.

    Raises LaunchError if no candidate works, RequestError if a replayed campaign holds no winner for this series.
    """
    assert run.kernel is not None
    assert run.config is not None
    if session.tune.kind == "replay":
        return _replayed(session, operator, task, run)
    shared = _shared_winner(session, operator, task, run)
    if shared is not None:
        return shared
    candidates = candidates_of(run.config, run.kernel.space(task.case))
    if len(candidates) == 1:
        return run.config, "tuned: the space has one configuration"
    backend = session.backends[run.trial.backend]
    source = next(k for k in session.registry.kernels_for(operator, run.trial.backend) if k.module == run.trial.module)
    key = winner_key(
        backend=run.trial.backend,
        kernel_source=source.source_hash,
        inputs=prepared.inputs,
        device=f"{session.device.name} {session.device.driver}",
        versions=backend.versions(),
        space=candidates,
        kind=session.tune.kind,
    )
    store = WinnerStore()
    known = store.get(key)
    if known is not None:
        return known.config, f"tuned: found again, {known.kind} search of {known.when}"
    journal = Journal(Path(session.campaign_dir) / "tuning.jsonl")
    started = time.perf_counter()
    ended = search(session, task, run, prepared, candidates, journal, key, emitter)
    winner = _pick(ended, candidates)
    passed = [candidate for candidate in ended.values() if candidate.median_us is not None]
    kept = Winner(
        key=key,
        operator=operator.name,
        dtype=task.case.dtype,
        params=dict(task.case.params),
        backend=run.trial.backend,
        device=session.device.name,
        config=winner.config,
        median_us=float(winner.median_us or 0.0),
        default_us=ended[candidate_key(run.config)].median_us,
        reason=f"fastest of {len(passed)}; ties within {NOISE:.0%} go to the earlier candidate",
        candidates=len(candidates),
        failed=len(candidates) - len(passed),
        seconds=time.perf_counter() - started,
        when=now(),
        kind=session.tune.kind,
    )
    journal.write("winner", key, **{k: v for k, v in kept.__dict__.items() if k != "key"})
    store.put(kept)
    return winner.config, f"tuned: {session.tune.kind} search over {len(candidates)} configurations"


NOISE = 0.01
"""Two candidates whose medians differ by less than this share are tied."""


def _pick(ended: Mapping[str, Candidate], candidates: Sequence[Config]) -> Candidate:
    """The fastest finalist; of those within the noise of it, the earliest in the list."""
    passed = [c for c in ended.values() if c.median_us is not None]
    finalists = [c for c in passed if c.finalist] or passed
    if not finalists:
        reasons = {c.failure for c in ended.values() if c.failure}
        raise LaunchError(f"none of {len(candidates)} configurations works: {'; '.join(sorted(reasons))[:300]}")
    best = min(float(c.median_us or 0.0) for c in finalists)
    tied = {candidate_key(c.config) for c in finalists if float(c.median_us or 0.0) <= best * (1 + NOISE)}
    first = next(candidate_key(config) for config in candidates if candidate_key(config) in tied)
    return ended[first]


def _shared_winner(session: Session, operator: Operator, task: TaskMessage, run: Run) -> tuple[Config, str] | None:
    """With `tune.share`, the winner of the nearest case that was searched on this device for the same kernel's space."""
    if session.tune.share == "case":
        return None
    assert run.kernel is not None
    assert run.config is not None
    allowed = {candidate_key(c) for c in candidates_of(run.config, run.kernel.space(task.case))}
    size = operator.config.bytes(task.case)
    near: list[tuple[float, Winner]] = []
    for winner in WinnerStore().all():
        same = winner.operator == operator.name and winner.backend == run.trial.backend
        same &= winner.device == session.device.name and winner.kind == session.tune.kind
        if same and (session.tune.share == "operator" or winner.dtype == task.case.dtype):
            other = replace(task.case, params=winner.params, dtype=winner.dtype)
            if candidate_key(winner.config) in allowed:
                near.append((abs(operator.config.bytes(other) - size), winner))
    if not near:
        return None
    winner = min(near, key=lambda pair: pair[0])[1]
    where = " ".join(f"{name}={value}" for name, value in winner.params.items())
    return winner.config, f"tuned: winner of {where} reused (tune.share={session.tune.share})"


def _replayed(session: Session, operator: Operator, task: TaskMessage, run: Run) -> tuple[Config, str]:
    from tilebench_core.campaign import find_campaign

    name = str(session.tune.from_campaign)
    for record in find_campaign(name, session.results_dir).records():
        same = (record.operator, record.dtype, record.backend) == (operator.name, task.case.dtype, run.trial.backend)
        if same and record.mode == "tuned" and record.params == dict(task.case.params) and record.config is not None:
            return record.config, f"tuned: replayed from {name}"
    raise RequestError(
        f"campaign {name!r} holds no tuned record of {operator.name} {task.case.dtype} {task.case.label} on"
        f" {run.trial.backend}; run it with tune=shared first"
    )
