"""Which configuration a tuned trial runs with: found again, replayed, or searched for."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tilebench_core.backend import Backend
from tilebench_core.device import Device
from tilebench_core.environment import now
from tilebench_core.errors import BackendError, LaunchError, NotTunable, RequestError
from tilebench_core.kernel import Config
from tilebench_core.outcomes import Outcome
from tilebench_core.packs import KernelSource, Operator
from tilebench_core.timing import TimingSettings
from tilebench_core.tune.journal import Candidate, candidate_key, tuning_log
from tilebench_core.tune.native import native_search
from tilebench_core.tune.replay import pinned_config, pinned_configs
from tilebench_core.tune.search import Search, pick, search
from tilebench_core.tune.store import Winner, WinnerStore, candidates_of, code_key, known_winner, winner_key
from tilebench_core.verify import PreparedCase
from tilebench_core.worker.messages import Emitter, TaskMessage

if TYPE_CHECKING:
    from tilebench_core.worker.case import Run
    from tilebench_core.worker.session import Session

__all__ = ["code_of", "tuned_config"]


def code_of(backend: Backend, kernel: KernelSource, device: Device, settings: TimingSettings, kind: str) -> str:
    """The part of a winner's key that all cases of a kernel share.

    Of the timing protocol only a cold cache and graphs can change which candidate wins; a DSL's own tuner times in its
    own way.
    """
    return code_key(
        backend=backend.name,
        options=asdict(backend.options),
        kernel_source=kernel.source_hash,
        device=f"{device.name} {device.driver}",
        versions=backend.versions(),
        conditions={"cold": settings.cold, "graph": settings.graph} if kind == "shared" else {},
        kind=kind,
    )


def tuned_config(
    session: Session, operator: Operator, task: TaskMessage, run: Run, prepared: PreparedCase, emitter: Emitter
) -> tuple[Config, str] | None:
    """Return the configuration for a tuned trial and where it came from; None if the trial ends here, as `run.end` says.

    Raises LaunchError if no candidate works, and whatever the DSL's own tuner gives up with.
    """
    assert run.kernel is not None
    assert run.config is not None
    about = {
        "trial": run.trial.trial_id, "kind": session.tune.kind, "operator": operator.name, "dtype": task.case.dtype,
        "params": dict(task.case.params), "backend": run.trial.backend, "device": session.device.name,
    }  # fmt: skip
    if session.tune.kind == "replay":
        return _replayed(session, task, run, about)
    candidates = candidates_of(run.config, run.kernel.space(task.case))
    if len(candidates) == 1:
        return run.config, "tuned: the space has one configuration"
    if session.backends[run.trial.backend].interpreted(session.device):
        _end(run, Outcome.UNSUPPORTED, "interpreted kernels are never timed, so there is nothing to tune by")
        return None
    work, code = _work(session, operator, task, run, prepared, emitter, candidates)
    known = known_winner(
        WinnerStore().all(), key=work.key, code=code, operator=operator.config, case=task.case, candidates=candidates,
        share=session.tune.share, within=session.tune.share_within,
    )  # fmt: skip
    if known is None:
        return _found(work, run.config, about, code)
    if known.key != work.key:
        return _shared(work, run.config, known, about)
    source = f"tuned: found again, {known.kind} search of {known.when}"
    work.journal.write("used", work.key, **about, config=known.config, source=source)
    return known.config, source


def _shared(work: Search, default: Config, known: Winner, about: Mapping[str, Any]) -> tuple[Config, str]:
    """The winner of another case, if it is faster here than this case's own default, which was made for its size.

    Both are measured as candidates are, by our own search whatever found the winner; what came of it is kept like a winner,
    under a key that no search has.
    """
    where = " ".join(f"{name}={value}" for name, value in {"dtype": known.dtype, **known.params}.items())
    asked = f"(tune.share={work.session.tune.share})"
    if candidate_key(known.config) == candidate_key(default):
        source = f"tuned: winner of {where}, which is the default here {asked}"
        work.journal.write("used", work.key, **about, config=known.config, source=source)
        return known.config, source
    pair = [dict(default), dict(known.config)]
    contest = replace(work, key=winner_key(work.key, (), pair), candidates=pair)
    kept = WinnerStore().get(contest.key)
    if kept is None:
        kept = _chosen(contest, default, {**about, "kind": "shared"}, code="")
    won = candidate_key(kept.config) == candidate_key(known.config)
    source = f"tuned: winner of {where}, faster than the default here {asked}"
    if not won:
        source = f"tuned: the default, which the winner of {where} does not beat here {asked}"
    work.journal.write("used", work.key, **about, config=kept.config, source=source)
    return kept.config, source


def _chosen(work: Search, default: Config, about: Mapping[str, Any], code: str) -> Winner:
    """Search, and keep the winner in the store and in the log, which also learns of a search that gave up."""
    try:
        winner = _searched(work, default, about, code)
    except NotTunable:
        raise
    except BackendError as error:
        work.journal.write("failed", work.key, **about, reason=str(error))
        raise
    WinnerStore().put(winner)
    told = {name: value for name, value in asdict(winner).items() if name != "key"}
    work.journal.write("winner", work.key, trial=about["trial"], **told)
    return winner


def _replayed(session: Session, task: TaskMessage, run: Run, about: Mapping[str, Any]) -> tuple[Config, str] | None:
    where = str(session.tune.from_campaign)
    try:
        config = pinned_config(
            pinned_configs(where, session.results_dir), about["operator"], task.case, about["backend"]
        )
    except RequestError as error:
        _end(run, Outcome.ERROR, str(error))
        return None
    if config is None:
        place = f"{about['operator']} {task.case.dtype} {task.case.label} on {about['backend']}"
        _end(run, Outcome.ERROR, f"{where} holds no winner of {place}; run it with tune=shared first")
        return None
    source = f"tuned: replayed from {where}"
    tuning_log(session.campaign_dir).write("used", "", **about, config=config, source=source)
    return config, source


def _found(work: Search, default: Config, about: Mapping[str, Any], code: str) -> tuple[Config, str] | None:
    """Search, and keep the winner in the store and in the log."""
    space = [dict(config) for config in work.candidates]
    work.journal.write("search", work.key, **about, default=dict(default), space=space)
    try:
        kept = _chosen(work, default, about, code)
    except NotTunable as error:
        work.journal.write("refused", work.key, **about, reason=str(error))
        _end(work.run, Outcome.UNSUPPORTED, f"tune={about['kind']}: {error}")
        return None
    return kept.config, f"tuned: {about['kind']} search over {len(work.candidates)} configurations"


def _end(run: Run, outcome: Outcome, reason: str) -> None:
    """End the trial without a configuration: it did not run with the default one."""
    run.end, run.config, run.config_source = (outcome, reason), None, None


def _work(
    session: Session, operator: Operator, task: TaskMessage, run: Run, prepared: PreparedCase, emitter: Emitter,
    candidates: Sequence[Config],
) -> tuple[Search, str]:  # fmt: skip
    """What a search works with, and the part of its key that all cases of the kernel share."""
    from tilebench_core.worker.timed import settings_for

    assert run.kernel is not None
    trial, backend = run.trial, session.backends[run.trial.backend]
    source = next(k for k in session.registry.kernels_for(operator, trial.backend) if k.module == trial.module)
    settings = settings_for(session, task)
    code = code_of(backend, source, session.device, settings, session.tune.kind)
    work = Search(
        session=session,
        run=run,
        prepared=prepared,
        emitter=emitter,
        journal=tuning_log(session.campaign_dir),
        key=winner_key(code, prepared.inputs, candidates),
        kernel=run.kernel,
        candidates=candidates,
        settings=settings,
    )
    return work, code


def _searched(work: Search, default: Config, about: Mapping[str, Any], code: str) -> Winner:
    """Search, and return the winner as it is kept. Raises LaunchError if no candidate works."""
    started = time.perf_counter()
    if about["kind"] == "native":
        ended, winner, reason = native_search(work)
    else:
        ended = search(work)
        winner, reason = _picked(work, ended)
    failed = sum(candidate.failure is not None for candidate in ended.values())
    return Winner(
        key=work.key,
        operator=about["operator"],
        dtype=about["dtype"],
        params=about["params"],
        backend=about["backend"],
        device=about["device"],
        config=dict(winner.config),
        median_us=float(winner.median_us or 0.0),
        default_us=ended[candidate_key(default)].median_us,
        reason=reason,
        candidates=len(work.candidates),
        failed=failed,
        seconds=time.perf_counter() - started,
        when=now(),
        kind=about["kind"],
        code=code,
        compile_s=_total([candidate.compile_s for candidate in ended.values()]),
        measure_s=_total([candidate.measure_s for candidate in ended.values()]),
    )


def _picked(work: Search, ended: Mapping[str, Candidate]) -> tuple[Candidate, str]:
    picked = pick(ended, work.candidates)
    if picked is None:
        reasons = sorted({str(candidate.failure) for candidate in ended.values()})
        raise LaunchError(f"none of {len(work.candidates)} configurations works: {'; '.join(reasons)[:300]}")
    lost = work.journal.lost_finalists(work.key)
    if lost is None:
        return picked
    return picked[0], f"{picked[1]} in the first round; the finalists were not measured in turns: {lost}"


def _total(seconds: Sequence[float | None]) -> float | None:
    known = [value for value in seconds if value is not None]
    return sum(known) if known else None
