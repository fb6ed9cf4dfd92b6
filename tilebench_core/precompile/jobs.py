"""What is compiled ahead of a campaign, and in which order: jobs that a process can be given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilebench_core.case import Case
from tilebench_core.config import TuneSettings
from tilebench_core.plan import CaseTask
from tilebench_core.tune.sharing import reach, searched

__all__ = ["CaseKey", "Followers", "Job", "jobs_of", "key_of", "parts_of", "slices_of", "worthwhile"]


_CASES_PER_JOB = 8


class Job(NamedTuple):
    """Default configurations of `cases`, or for tuned trials the whole space of one case, which `waiting` needs as well."""

    backend: str
    module: str
    folder: str
    cases: list[Case]
    tuned: bool
    waiting: list[Case]


def jobs_of(tasks: Sequence[CaseTask], tune: TuneSettings) -> list[Job]:
    """A job for every kernel and dtype that is going to run, and one for every case that is going to be searched.

    Where winners are shared, every case of the kernel waits for those that are searched. The whole space is compiled for our
    own search only: a DSL's own tuner compiles for itself, and its seconds count that.
    """
    grouped: dict[tuple[str, str, str, bool, str], list[CaseTask]] = {}
    for task in tasks:
        for trial in task.trials:
            tuned = trial.mode == "tuned"
            if trial.verdict is None and trial.module is not None and not (tuned and tune.kind != "shared"):
                within = reach(tune.share, task.case.dtype) if tuned else task.case.dtype
                grouped.setdefault((trial.backend, trial.module, task.operator.folder, tuned, within), []).append(task)
    jobs = []
    for (backend, module, folder, tuned, _), together in grouped.items():
        operator, cases = together[0].operator, [task.case for task in together]
        if not tuned:
            jobs.append(Job(backend, module, folder, cases, False, []))
            continue
        alone = tune.share == "case"
        for case in cases if alone else searched(cases, operator.config.bytes, tune.share_within):
            jobs.append(Job(backend, module, folder, [case], True, [] if alone else cases))
    return jobs


def worthwhile(jobs: list[Job], is_known: Callable[[Job], bool]) -> list[Job]:
    """The jobs, or none for a single kernel: the worker has compiled it before a compiler has started.

    A search whose winner is known compiles a single one too.
    """
    if len(jobs) != 1 or len(jobs[0].cases) != 1 or len(jobs[0].waiting) > 1:
        return jobs
    return [] if not jobs[0].tuned or is_known(jobs[0]) else jobs


def slices_of(jobs: Sequence[Job], cores: int) -> int:
    """In how many parts each searched space is compiled, so that one case alone keeps the cores busy too."""
    return max(1, cores // max(1, sum(job.tuned for job in jobs)))


def parts_of(cases: Sequence[Case]) -> list[list[Case]]:
    """A sample of the cases (the first, the middle and the last one), then the others in groups."""
    sample = sorted({0, len(cases) // 2, len(cases) - 1})
    rest = [case for place, case in enumerate(cases) if place not in sample]
    return [
        [cases[place] for place in sample],
        *(rest[start : start + _CASES_PER_JOB] for start in range(0, len(rest), _CASES_PER_JOB)),
    ]


CaseKey = tuple[str, str, str, int]


def key_of(folder: str, case: Case) -> CaseKey:
    """What tells a case from all others of a run."""
    return folder, case.dtype, case.kind, case.index


class Followers:
    """Cases that share winners: what they need is known, and compiled, when those that are searched for them have run."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._leaders: list[tuple[set[CaseKey], Job]] = []
        together: dict[tuple[str, str, tuple[CaseKey, ...]], list[Job]] = {}
        for job in jobs:
            if job.waiting:  # the same cases wait for all jobs of a kernel that share winners
                waiting = tuple(key_of(job.folder, case) for case in job.waiting)
                together.setdefault((job.backend, job.module, waiting), []).append(job)
        for group in together.values():
            leaders = {key_of(job.folder, case) for job in group for case in job.cases}
            first = group[0]
            rest = [case for case in first.waiting if key_of(first.folder, case) not in leaders]
            if rest:
                self._leaders.append((leaders, first._replace(cases=rest, waiting=[])))
        self._held = Counter(key_of(job.folder, case) for _, job in self._leaders for case in job.cases)

    def held(self, key: CaseKey) -> bool:
        """Whether a case still waits for one that is searched for it."""
        return self._held[key] > 0

    def after(self, key: CaseKey) -> list[Job]:
        """What can be compiled now that the case has run."""
        freed = []
        for leaders, job in self._leaders:
            leaders.discard(key)
            if not leaders:
                freed.append(job)
                self._held.subtract(key_of(job.folder, case) for case in job.cases)
        self._leaders = [(leaders, job) for leaders, job in self._leaders if leaders]
        return freed
