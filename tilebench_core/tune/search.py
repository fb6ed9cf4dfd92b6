"""The shared search: each candidate is verified before its time counts, slow ones are dropped early, finalists re-measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilebench_core.backend import Backend
from tilebench_core.kernel import Config, Kernel
from tilebench_core.timing import Entry, Sample, TimingSettings, time_entries
from tilebench_core.timing.gpu import capture
from tilebench_core.tune.journal import Candidate, Journal, candidate_key
from tilebench_core.verify import PreparedCase, verify_launch
from tilebench_core.worker.messages import Emitter

if TYPE_CHECKING:
    from tilebench_core.worker.case import Run
    from tilebench_core.worker.session import Session

__all__ = ["NOISE", "Search", "finalists_of", "pick", "search"]

NOISE = 0.01
"""Two candidates whose medians differ by less than this share are tied."""

_FIRST_SAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class Search:
    """What one search works with. `settings` is the protocol of the final measurement, `candidates` in their order."""

    session: Session
    run: Run
    prepared: PreparedCase
    emitter: Emitter
    journal: Journal
    key: str
    kernel: Kernel
    candidates: Sequence[Config]
    settings: TimingSettings

    @property
    def backend(self) -> Backend:
        """The backend that the kernel is written for."""
        return self.session.backends[self.run.trial.backend]

    def call(self, config: Config) -> Callable[[], Any]:
        """A call of the kernel in one configuration on the live inputs."""
        return lambda: self.backend.launch(self.kernel, self.prepared.inputs, config)

    def launchable(self, config: Config) -> Callable[[], Any]:
        """The replay of a graph where the protocol wants graphs and the call can be captured, else the call."""
        call = self.call(config)
        if not self.session.device.is_gpu or not self.settings.graph:
            return call
        try:
            return capture(call).replay
        except RuntimeError:
            import torch

            torch.cuda.synchronize()
            return call  # the final measurement times it eagerly too, and its record says why

    def before(self) -> None:
        """Evict the cache where the final measurement will."""
        if self.settings.cold:
            self.session.before_launch()


def search(work: Search) -> dict[str, Candidate]:
    """Measure the candidates; return each one's end by its key. What an interrupted search had ended is not run again.

    Raises DeviceLost if a candidate takes the device with it; the log then knows which.
    """
    ended = work.journal.ended(work.key)
    best = min((c.median_us for c in ended.values() if c.median_us is not None), default=float("inf"))
    trial, limits = work.run.trial.trial_id, work.session.limits
    for number, config in enumerate(work.candidates):
        if candidate_key(config) in ended:
            continue
        work.journal.write("started", work.key, trial=trial, config=dict(config))
        work.emitter.step(trial, f"tune {number + 1}/{len(work.candidates)}", limits.compile_s + limits.run_s)
        candidate = _measure(work, config, best)
        work.journal.candidate(work.key, candidate)
        ended[candidate_key(config)] = candidate
        if candidate.median_us is not None and not candidate.dropped:
            best = min(best, candidate.median_us)
    work.prepared.refill(0)
    _remeasure(work, ended)
    return ended


def _measure(work: Search, config: Config, best: float) -> Candidate:
    """Compile, verify and time one candidate; whatever goes wrong with it is its result."""
    from tilebench_core.worker.case import charged, synchronise

    session, state = work.session, replace(work.run, end=None)
    compile_s = registers = spill = None
    samples: list[float] = []
    failure: str | None = None
    dropped = False
    started = time.perf_counter()
    with charged(session, state):
        work.prepared.refill(0)  # a candidate before this one may have written to its inputs
        compilation = work.backend.compile(work.kernel, work.prepared.inputs, config)
        compile_s = time.perf_counter() - started
        registers = max((launch.resources.registers or 0 for launch in compilation.launches), default=0) or None
        spill = max((launch.resources.spill_bytes or 0 for launch in compilation.launches), default=0)
        verdict = verify_launch(work.prepared, work.call(config))
        synchronise(session)
        if not verdict.passed:
            failure = f"WRONG: {verdict.message}"
        else:
            work.prepared.refill(0)
            samples, dropped = _samples(work, config, best)
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


def _samples(work: Search, config: Config, best: float) -> tuple[list[float], bool]:
    """The first round's samples, and whether the candidate was dropped because it is much slower than the best."""
    session, tune = work.session, work.session.tune
    # A clock that yields one mean can be asked once only.
    parts = [tune.samples] if session.clock.means_only else [_FIRST_SAMPLES, tune.samples - _FIRST_SAMPLES]
    taken: list[Sample] = []
    dropped = False
    with session.clock.case():
        launch = work.launchable(config)
        launch()
        for count in parts:
            if count > 0 and not dropped:
                taken += session.clock.measure([launch], [0] * count, work.before)
                dropped = statistics.median(s.busy_us for s in taken) > best * tune.drop_slower_than
    if all(sample.activities == 0 for sample in taken):
        raise RuntimeError("it started no kernel, copy or memset on the stream that was current")
    return [sample.busy_us for sample in taken], dropped


def finalists_of(ended: Mapping[str, Candidate], candidates: Sequence[Config], count: int) -> list[Candidate]:
    """The `count` fastest, and whoever may still be tied with the fastest: the first round is a rough one."""
    timed = [c for key in map(candidate_key, candidates) if (c := ended[key]).median_us is not None and not c.dropped]
    fastest = sorted(timed, key=lambda c: float(c.median_us or 0.0))
    close = float(fastest[0].median_us or 0.0) * (1 + 2 * NOISE) if fastest else 0.0
    chosen = {candidate_key(c.config) for c in fastest[: max(2, count)]}
    return [c for c in timed if candidate_key(c.config) in chosen or float(c.median_us or 0.0) <= close]


def _remeasure(work: Search, ended: dict[str, Candidate]) -> None:
    """Measure the finalists again in turns, with the final protocol, so that the choice is made under equal conditions."""
    finalists = finalists_of(ended, work.candidates, work.session.tune.finalists)
    settled = any(c.finalist for c in ended.values()) or work.journal.lost_finalists(work.key) is not None
    if settled or len(finalists) < 2:
        return
    trial, session = work.run.trial.trial_id, work.session
    work.journal.write("finalists", work.key, trial=trial, configs=[dict(c.config) for c in finalists])
    work.emitter.step(trial, "tune finalists", session.limits.compile_s + session.limits.time_s)
    started = time.perf_counter()
    for candidate in finalists:
        work.backend.compile(work.kernel, work.prepared.inputs, candidate.config)
    work.prepared.refill(0)
    with session.clock.case():
        entries = []
        for candidate in finalists:
            launch = work.launchable(candidate.config)
            entries.append(Entry(candidate_key(candidate.config), launch, launch))
        timings = time_entries(entries, work.settings, session.clock, work.before)
    share_s = (time.perf_counter() - started) / len(finalists)
    for candidate, timing in zip(finalists, timings, strict=True):
        samples = [sample.busy_us for sample in timing.samples]
        again = replace(
            candidate,
            samples_us=tuple(round(sample, 4) for sample in samples),
            median_us=statistics.median(samples),
            finalist=True,
            measure_s=(candidate.measure_s or 0.0) + share_s,
        )
        ended[candidate_key(candidate.config)] = again
    work.journal.finals(work.key, [ended[candidate_key(candidate.config)] for candidate in finalists])


def pick(ended: Mapping[str, Candidate], candidates: Sequence[Config]) -> tuple[Candidate, str] | None:
    """The winner and why: the fastest finalist, or of those within the noise of it the earliest. None if none passed."""
    passed = [c for key in map(candidate_key, candidates) if (c := ended[key]).median_us is not None]
    finalists = [c for c in passed if c.finalist] or passed
    if not finalists:
        return None
    best = min(float(c.median_us or 0.0) for c in finalists)
    tied = [c for c in finalists if float(c.median_us or 0.0) <= best * (1 + NOISE)]
    if len(tied) == 1:
        return tied[0], f"fastest of {len(passed)}"
    return tied[0], f"first in the list of {len(tied)} within {NOISE:.0%} of the fastest ({best:.2f} µs)"
