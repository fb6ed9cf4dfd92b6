"""The shared search: each candidate is checked before its time counts, slow ones are dropped early, finalists re-measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilebench_core.kernel import Config
from tilebench_core.timing import Entry, time_entries
from tilebench_core.timing.gpu import capture
from tilebench_core.tune.journal import Candidate, Journal, candidate_key
from tilebench_core.verify import PreparedCase, compare_outputs
from tilebench_core.worker.messages import Emitter, TaskMessage

if TYPE_CHECKING:
    from tilebench_core.worker.case import Run
    from tilebench_core.worker.session import Session

__all__ = ["search"]

_FIRST_SAMPLES = 3


def search(
    session: Session,
    task: TaskMessage,
    run: Run,
    prepared: PreparedCase,
    candidates: Sequence[Config],
    journal: Journal,
    key: str,
    emitter: Emitter,
) -> Mapping[str, Candidate]:
    """Measure `candidates`; return each one's end by its key. What an interrupted search had ended is not run again."""
    ended = dict(journal.ended(key))
    if not ended:
        journal.write("search", key, operator=task.folder, backend=run.trial.backend, candidates=len(candidates))
    best = min((c.median_us for c in ended.values() if c.median_us is not None), default=float("inf"))
    prepared.refill(0)
    for number, config in enumerate(candidates):
        if candidate_key(config) in ended:
            continue
        limit = session.limits.compile_s + session.limits.run_s
        emitter.step(run.trial.trial_id, f"tune {number + 1}/{len(candidates)}", limit)
        journal.write("started", key, config=dict(config))
        candidate = _measure(session, run, prepared, config, best)
        journal.candidate(key, candidate)
        ended[candidate_key(config)] = candidate
        if candidate.median_us is not None and not candidate.dropped:
            best = min(best, candidate.median_us)
    _remeasure(session, run, prepared, ended, journal, key, emitter)
    return ended


def _call(session: Session, run: Run, prepared: PreparedCase, config: Config) -> Callable[[], Any]:
    backend, kernel = session.backends[run.trial.backend], run.kernel
    assert kernel is not None
    return lambda: backend.launch(kernel, prepared.inputs, config)


def _launchable(session: Session, call: Callable[[], Any]) -> Callable[[], Any]:
    """The replay of a graph where the protocol wants graphs and the call can be captured, else the call."""
    if not session.device.is_gpu or not session.timing.graph:
        return call
    try:
        return capture(call).replay
    except RuntimeError:
        import torch

        torch.cuda.synchronize()
        return call  # the final measurement times it eagerly too, and its record says why


def _measure(session: Session, run: Run, prepared: PreparedCase, config: Config, best: float) -> Candidate:
    from tilebench_core.worker.case import charged, synchronise

    backend = session.backends[run.trial.backend]
    state = replace(run, end=None)
    compile_s = registers = spill = None
    started = time.perf_counter()
    samples: list[float] = []
    failure: str | None = None
    dropped = False
    with charged(session, state):
        assert run.kernel is not None
        compilation = backend.compile(run.kernel, prepared.inputs, config)
        compile_s = time.perf_counter() - started
        registers = max((launch.resources.registers or 0 for launch in compilation.launches), default=0) or None
        spill = max((launch.resources.spill_bytes or 0 for launch in compilation.launches), default=0)
        call = _call(session, run, prepared, config)
        comparison = compare_outputs(call(), prepared.expected[0], prepared.inputs, prepared.tolerance)
        synchronise(session)
        if not comparison.passed:
            failure = f"wrong: {comparison.message}"
        elif not backend.interpreted(session.device):
            launch = _launchable(session, call)
            with session.clock.case():
                launch()
                for count in (_FIRST_SAMPLES, session.tune.samples - _FIRST_SAMPLES):
                    if count > 0 and not dropped:
                        measured = session.clock.measure([launch], [0] * count, session.before_launch)
                        samples += [sample.busy_us for sample in measured]
                        dropped = statistics.median(samples) > best * session.tune.drop_slower_than
    if state.end is not None:
        failure = f"{state.end[0].value}: {state.end[1]}"
    return Candidate(
        config=dict(config),
        samples_us=tuple(round(sample, 4) for sample in samples),
        median_us=statistics.median(samples) if samples and failure is None else None,
        failure=failure,
        dropped=dropped,
        compile_s=compile_s,
        measure_s=time.perf_counter() - started - (compile_s or 0.0),
        registers=registers,
        spill_bytes=spill,
    )


def _remeasure(
    session: Session,
    run: Run,
    prepared: PreparedCase,
    ended: dict[str, Candidate],
    journal: Journal,
    key: str,
    emitter: Emitter,
) -> None:
    """Measure the fastest few again in turns, with the final protocol, so that the choice is made under equal conditions."""
    timed = [c for c in ended.values() if c.median_us is not None and not c.dropped and not c.finalist]
    if any(c.finalist for c in ended.values()) or len(timed) < 2:
        return
    fastest = sorted(timed, key=lambda c: float(c.median_us or 0.0))[: max(2, session.tune.finalists)]
    emitter.step(run.trial.trial_id, "tune finalists", session.limits.time_s)
    backend = session.backends[run.trial.backend]
    assert run.kernel is not None
    with session.clock.case():
        entries = []
        for candidate in fastest:
            backend.compile(run.kernel, prepared.inputs, candidate.config)
            launch = _launchable(session, _call(session, run, prepared, candidate.config))
            entries.append(Entry(candidate_key(candidate.config), launch, launch))
        timings = time_entries(entries, session.timing, session.clock, session.before_launch)
    for candidate, timing in zip(fastest, timings, strict=True):
        samples = [sample.busy_us for sample in timing.samples]
        again = replace(
            candidate,
            samples_us=tuple(round(sample, 4) for sample in samples),
            median_us=statistics.median(samples),
            finalist=True,
        )
        journal.candidate(key, again)
        ended[candidate_key(candidate.config)] = again
