"""Timing the runs of one case that passed: graphs, rounds in turns, and the values that the timed launches left."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilebench_core.outcomes import Outcome
from tilebench_core.timing import ClockError, Entry, TimingSettings, time_entries
from tilebench_core.timing.gpu import capture, device_state
from tilebench_core.verify import PreparedCase, compare_outputs
from tilebench_core.worker.case import Run, charged, check_device, classify, first_line, launcher, synchronise
from tilebench_core.worker.messages import Emitter, TaskMessage
from tilebench_core.worker.session import Session

__all__ = ["settings_for", "time_runs", "with_wishes"]


def settings_for(session: Session, task: TaskMessage) -> TimingSettings:
    """The session's protocol, with the operator's own wishes where the protocol lets them stand above it."""
    return with_wishes(session.timing, task.config)


def with_wishes(settings: TimingSettings, operator_config: Mapping[str, Any]) -> TimingSettings:
    """`settings` with the `benchmark` block of an operator's composed configuration above them, if they allow it."""
    wishes = operator_config.get("benchmark") or {}
    if not settings.operator_benchmark or not wishes:
        return settings
    names = {"use_cuda_graph": "graph", "flush_l2": "cold"}
    return replace(settings, **{names.get(key, key): value for key, value in wishes.items()})


def time_runs(session: Session, task: TaskMessage, runs: list[Run], prepared: PreparedCase, emitter: Emitter) -> None:
    """Time `runs` in turns and compare what the timed launches wrote; a run that fails here ends with its reason."""
    try:
        _take_turns(session, task, runs, prepared, emitter)
    except ClockError as error:  # nothing replaces the configured clock: what could not be timed says why
        for run in runs:
            if run.end is None:
                run.end, run.timing = (Outcome.ERROR, str(error)), None


def _take_turns(session: Session, task: TaskMessage, runs: list[Run], prepared: PreparedCase, emitter: Emitter) -> None:
    settings = settings_for(session, task)
    prepared.refill(0)
    with session.clock.case():
        entries, timed = [], []
        for run in runs:
            emitter.step(run.trial.trial_id, "capture", session.limits.run_s)
            with run.clocked("capture"), charged(session, run):
                entries.append(_entry(session, settings, run, prepared))
                timed.append(run)
        if not timed:
            return
        emitter.step(timed[0].trial.trial_id if len(timed) == 1 else None, "time", session.limits.time_s)
        start = time.perf_counter()
        state_before = device_state(session.nvml)
        if session.flush is not None:
            session.flush.reset_persisting()
        before = session.before_launch if settings.cold else _nothing
        failure: Exception | None = None
        try:
            timings = time_entries(entries, settings, session.clock, before)
            synchronise(session)
        except ClockError:
            raise
        except Exception as error:  # a kernel raised while it was timed; which one shows when each goes alone
            failure = error
    if failure is not None:
        _charge_one(session, task, timed, prepared, emitter, failure)
        return
    state = _state(state_before, device_state(session.nvml))
    busy_s, session.clock.device_s = session.clock.device_s, 0.0 if session.clock.device_s is not None else None
    share = (time.perf_counter() - start) / len(timed)
    for run, timing in zip(timed, timings, strict=True):
        run.timing, run.device_state = timing, state
        run.seconds["time"] = share
        run.device_s = busy_s / len(timed) if busy_s is not None else None
        if timing.samples and all(sample.activities == 0 for sample in timing.samples):
            reason = "its call started no kernel, copy or memset on the stream that was current"
            run.end, run.timing = (Outcome.NO_DEVICE_WORK, reason), None
            continue
        with run.clocked("verify"), charged(session, run):
            comparison = compare_outputs(run.outputs, prepared.expected[0], prepared.inputs, prepared.tolerance)
            if not comparison.passed:
                run.end = (Outcome.WRONG, f"values of the timed launches: {comparison.message}")
                run.check = comparison.check
        run.outputs = None


def _charge_one(
    session: Session, task: TaskMessage, timed: list[Run], prepared: PreparedCase, emitter: Emitter, error: Exception
) -> None:
    """Charge `error` to the one run that was timed, or time each of several alone to find whose it is."""
    check_device(session, error)
    if len(timed) == 1:
        timed[0].end, timed[0].timing = classify(error), None
        return
    for run in timed:
        time_runs(session, task, [run], prepared, emitter)


def _state(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """NVML's readings after the timing, with those before it under `before`; throttled if either says so."""
    if before is None or after is None:
        return None
    told = [state["throttled"] for state in (before, after) if state["throttled"] is not None]
    return {**after, "before": dict(before), "throttled": any(told) if told else None}


def _nothing() -> None:
    pass


def _entry(session: Session, settings: TimingSettings, run: Run, prepared: PreparedCase) -> Entry:
    """What is timed for `run`: the replay of a graph, or the call itself where there is no graph."""
    call = launcher(session, run, prepared)

    def kept() -> Any:
        run.outputs = call()
        return run.outputs

    if not session.device.is_gpu or not settings.graph:
        run.graph = False
        run.graph_reason = "a CPU has no graphs" if not session.device.is_gpu else "timing.graph=false"
        return Entry(run.trial.trial_id, kept, kept)
    try:
        captured = capture(call)
    except Exception as error:  # some calls cannot be captured; they are timed eagerly and the record says so
        synchronise(session)
        run.graph, run.graph_reason = False, f"not captured: {first_line(error)}"
        return Entry(run.trial.trial_id, kept, kept)
    run.graph, run.outputs = True, captured.outputs
    return Entry(run.trial.trial_id, captured.replay, call if session.clock.means_only else captured.replay)
