"""Running a plan: the parent hands cases to a worker, charges deaths and hangs, and keeps every record."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tilebench_core.campaign import Campaign
from tilebench_core.errors import TilebenchError
from tilebench_core.outcomes import Outcome
from tilebench_core.plan import CaseTask, Trial
from tilebench_core.precompile.pool import Precompiler
from tilebench_core.records import Record, RecordWriter, record_from_json
from tilebench_core.tune.journal import tuning_log
from tilebench_core.worker.messages import task_to_json
from tilebench_core.worker.process import Worker, WorkerDied

__all__ = ["Progress", "Runner", "WorkerFailed", "to_do"]

_GRACE_S = 30.0
"""Between two announced steps a worker may be silent for this long (it imports, computes statistics, frees memory)."""


class WorkerFailed(TilebenchError):
    """The worker cannot start at all, so nothing can run."""


class Progress:
    """What the runner tells about; the display implements it."""

    def case_started(self, task: CaseTask, remaining: int) -> None:
        """A case goes to the worker; `remaining` cases are left, it included."""

    def step_started(self, task: CaseTask, trial: Trial | None, step: str) -> None:
        """The worker begins a step."""

    def recorded(self, record: Record) -> None:
        """A trial has ended."""

    def worker_lost(self, reason: str) -> None:
        """The worker died or was killed; a fresh one goes on."""


def to_do(plan: list[CaseTask], records: list[Record], rerun: str) -> list[CaseTask]:
    """The part of `plan` that is still to run: nothing that is recorded, unless `rerun` asks for it again."""
    if rerun == "all":
        return plan
    done = {record.trial_id for record in records if not (rerun == "failed" and record.outcome.is_failure)}
    left = [task.without(done) for task in plan]
    return [task for task in left if task.trials]


@dataclass
class Runner:
    """Runs case after case. `settings` and `environment` are what each worker is started with, by `start_worker`."""

    campaign: Campaign
    settings: Mapping[str, Any]
    environment: Mapping[str, str]
    progress: Progress
    recycle_after: int = 0
    precompiler: Precompiler | None = None
    start_worker: Callable[[Mapping[str, Any], Mapping[str, str], Path], Worker] = Worker
    worker: Worker | None = None
    records: list[Record] = field(default_factory=list)
    _cases_in_worker: int = 0
    _worker_is_ready: bool = False

    def run(self, tasks: list[CaseTask]) -> list[Record]:
        """Run `tasks`; return the records, which are also on disk. `close` stops the worker."""
        writer = self.campaign.writer()
        try:
            queue = list(tasks)
            while queue:
                task = queue.pop(self._next(queue))
                self.progress.case_started(task, len(queue) + 1)
                rest = self._run_case(task, writer)
                queue[:0] = rest
                if self.precompiler is not None and not rest:
                    self.precompiler.finished(task)
        finally:
            writer.close()
        return self.records

    def _next(self, queue: list[CaseTask]) -> int:
        """The place of the first case whose kernels are compiled; without any, wait for one."""
        if self.precompiler is None:
            return 0
        self._launch_worker()  # it loads PyTorch and the DSLs while the first kernels compile
        while True:
            self.precompiler.report()
            place = next((place for place, task in enumerate(queue) if self.precompiler.ready(task)), None)
            if place is not None:
                return place
            if self.precompiler.idle:
                return 0  # what it waits for will not come: it compiles for itself
            self.precompiler.wait(_GRACE_S)

    def start(self) -> None:
        """Start the worker and wait until it is ready for its first case. Raises WorkerFailed."""
        self._ready_worker()

    def close(self) -> None:
        """Stop the worker."""
        if self.worker is not None:
            self.worker.stop()
            self.worker = None

    def _keep(self, record: Record, writer: RecordWriter) -> None:
        writer.append(record)
        self.records.append(record)
        self.progress.recorded(record)

    def _run_case(self, task: CaseTask, writer: RecordWriter) -> list[CaseTask]:
        """Run one case; return what is left of it after a worker was lost."""
        current: tuple[str | None, str] = (None, "start")
        done: set[str] = set()
        worker = self._ready_worker()
        worker.send(task_to_json(task))
        deadline = time.monotonic() + _GRACE_S
        try:
            while True:
                event = worker.next_event(deadline)
                deadline = time.monotonic() + _GRACE_S
                if event["event"] == "step":
                    current = event["trial"], event["step"]
                    deadline = time.monotonic() + event["limit_s"]
                    self.progress.step_started(task, _trial(task, event["trial"]), event["step"])
                elif event["event"] == "record":
                    record = record_from_json(event["line"])
                    done.add(record.trial_id)
                    self._keep(record, writer)
                elif event["event"] == "lost":
                    return self._lost(task, done, current, Outcome.CRASHED, event["reason"], writer)
                elif event["event"] == "done":
                    self._cases_in_worker += 1
                    return []
        except TimeoutError:
            return self._lost(task, done, current, Outcome.TIMEOUT, f"no end of {current[1]!r} in time", writer)
        except WorkerDied as death:
            return self._lost(task, done, current, Outcome.CRASHED, f"the worker {death} in {current[1]!r}", writer)

    def noise(self, tasks: list[CaseTask]) -> list[float]:
        """Time each of `tasks` against itself; return the ratios. A worker that fails here costs only these figures."""
        ratios: list[float] = []
        try:
            for task in tasks:
                worker = self._ready_worker()
                worker.send({**task_to_json(task), "noise": True})
                deadline = time.monotonic() + self.settings["limits"]["time_s"]
                while (event := worker.next_event(deadline))["event"] != "done":
                    ratios += event.get("ratios", [])
        except (TimeoutError, WorkerDied, WorkerFailed) as failure:
            self.progress.worker_lost(f"noise floor not measured: {failure}")
            if self.worker is not None:
                self.worker.kill()
                self.worker = None
        return ratios

    def _ready_worker(self) -> Worker:
        """The worker, started afresh where there is none or it has served long enough."""
        if self.worker is not None and self.recycle_after and self._cases_in_worker >= self.recycle_after:
            self.worker.stop()
            self.worker = None
        worker = self._launch_worker()
        if not self._worker_is_ready:
            self._await_start(worker)
            self._worker_is_ready = True
        return worker

    def _launch_worker(self) -> Worker:
        """The worker, which may still be starting."""
        if self.worker is None:
            self.worker = self.start_worker(self.settings, self.environment, self.campaign.log_path)
            self._cases_in_worker, self._worker_is_ready = 0, False
        return self.worker

    def _await_start(self, worker: Worker) -> None:
        deadline = time.monotonic() + self.settings["limits"]["prepare_s"]
        try:
            while True:
                event = worker.next_event(deadline)
                if event["event"] == "ready":
                    return
                if event["event"] == "failed":
                    raise WorkerFailed(event["reason"])
        except TimeoutError:
            reason = f"the worker did not start within {self.settings['limits']['prepare_s']} s"
        except WorkerDied as death:
            reason = f"the worker {death} while it started"
        raise WorkerFailed(f"{reason}; its output is in {self.campaign.log_path}")

    def _lost(
        self,
        task: CaseTask,
        done: set[str],
        current: tuple[str | None, str],
        outcome: Outcome,
        reason: str,
        writer: RecordWriter,
    ) -> list[CaseTask]:
        """Replace the worker, charge what was in flight, and return what is left of the case."""
        assert self.worker is not None
        self.worker.kill()
        self.worker = None
        self.progress.worker_lost(reason)
        left = task.without(done)
        open_trials = [trial for trial in left.trials if trial.verdict is None]
        trial_id, step = current
        if step == "start" and self._cases_in_worker > 0:
            return [task]  # it died between two cases: this one has not begun, and a fresh worker takes it
        if step.startswith("tune "):
            # It cost a candidate, not the search: the tuning log knows which, and the search goes on behind it.
            tuning_log(self.campaign.folder).lost(trial_id, reason)
            return [left]
        if trial_id is None and step == "time" and len(open_trials) > 1:
            # Several took turns, so nobody can be charged yet: each goes on alone.
            return [replace(task, trials=(trial,)) for trial in left.trials]
        charged = open_trials if trial_id is None else [trial for trial in left.trials if trial.trial_id == trial_id]
        if not charged and not done:
            charged = list(left.trials)  # nobody can be charged and nothing was achieved: to try again might never end
        for trial in charged:
            self._keep(charge(task, trial, outcome, reason), writer)
        rest = left.without(trial.trial_id for trial in charged)
        return [rest] if rest.trials else []


def _trial(task: CaseTask, trial_id: str | None) -> Trial | None:
    return next((trial for trial in task.trials if trial.trial_id == trial_id), None)


def charge(task: CaseTask, trial: Trial, outcome: Outcome, reason: str) -> Record:
    """The record of a trial that ended its worker."""
    case, config = task.case, task.operator.config
    return Record(
        trial_id=trial.trial_id,
        operator=task.operator.name,
        category=config.category,
        dtype=case.dtype,
        params=dict(case.params),
        backend=trial.backend,
        provider=trial.provider,
        kernel=trial.kernel,
        mode=trial.mode,
        outcome=outcome,
        reason=reason,
        case_kind=case.kind,
        case_index=case.index,
        operator_config_changed=task.changed,
        precision=config.precision(case.dtype),
        flops=config.flops(case),
        bytes=config.bytes(case),
    )
