"""The native search: the DSL's own tuner chooses among the same candidates, so that its choice and cost can be compared."""

from __future__ import annotations

from tilebench_core.backend import NativeSearch
from tilebench_core.tune.journal import Candidate, candidate_key
from tilebench_core.tune.search import Search

__all__ = ["native_search"]


def native_search(work: Search) -> tuple[dict[str, Candidate], Candidate, str]:
    """Return each candidate's end by its key, the tuner's winner, and what it was chosen by.

    One step covers the whole search: a candidate that hangs or crashes here costs all of it, and the trial's record
    says so. Raises NotTunable if the tuner cannot be driven for this kernel, and what `Backend.autotune` raises.
    """
    limits, count = work.session.limits, len(work.candidates)
    work.prepared.refill(0)
    work.emitter.step(work.run.trial.trial_id, "native tuning", limits.compile_s + count * limits.run_s)
    found: NativeSearch = work.backend.autotune(work.kernel, work.prepared.inputs, work.candidates)
    ended = {
        candidate_key(seen.config): Candidate(
            config=dict(seen.config),
            median_us=seen.time_us,
            failure=seen.failure if seen.time_us is None else None,
            compile_s=seen.compile_s,
        )
        for seen in found.candidates
    }
    for candidate in ended.values():
        work.journal.candidate(work.key, candidate)
    return ended, ended[candidate_key(found.winner)], f"chosen by {found.tuner}; {found.measured}"
