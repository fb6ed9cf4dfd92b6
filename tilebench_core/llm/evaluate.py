"""The evaluator: a candidate goes through the same plan, worker, verification and clock as every other kernel, behind walls."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilebench_core.campaign import Campaign
from tilebench_core.case import Case
from tilebench_core.device import Device
from tilebench_core.environment import backend_versions
from tilebench_core.errors import TilebenchError
from tilebench_core.jobs import device_lock, worker_environment
from tilebench_core.llm.archive import digest
from tilebench_core.llm.attempts import Attempt, CaseResult
from tilebench_core.llm.candidate import candidate_registry, write_site
from tilebench_core.llm.config import LlmConfig
from tilebench_core.llm.diagnostics import diagnostic_of, one_line
from tilebench_core.llm.guard import FORBIDDEN, NO_KERNEL
from tilebench_core.llm.recorded import RecordedTimes, case_key
from tilebench_core.llm.status import Status
from tilebench_core.llm.walls.spec import BLOCKED, SCRATCH, Walls
from tilebench_core.outcomes import Outcome
from tilebench_core.packs import Operator
from tilebench_core.plan import CaseTask, make_plan
from tilebench_core.records import Record
from tilebench_core.registry import Registry
from tilebench_core.roofline import Ceilings
from tilebench_core.run import Progress, Runner, WorkerFailed
from tilebench_core.worker.process import Worker
from tilebench_core.worker.session import session_settings

__all__ = ["EvaluatorError", "HarnessEvaluator"]

_OURS = (Outcome.INVALID_REFERENCE, Outcome.UNAVAILABLE, Outcome.MISSING, Outcome.ERROR)
"""Ends that say nothing about the candidate."""

_ENOUGH = (
    Status.COMPILE_ERROR,
    Status.TIMEOUT,
    Status.CRASHED,
    Status.BLOCKED,
    Status.VIOLATION,
    Status.NO_DEVICE_WORK,
)
"""After one of these the remaining cases are not run: they would only cost time."""


class EvaluatorError(TilebenchError):
    """The evaluator itself failed; the round is judged when the same command is run again."""


@dataclass(frozen=True, kw_only=True)
class HarnessEvaluator:
    """Evaluates the candidates of one operator on `cases`."""

    registry: Registry
    config: LlmConfig
    operator: Operator
    cases: Sequence[Case]
    device: Device
    ceilings: Ceilings | None
    walls: Walls
    baseline_us: Mapping[str, float] = field(default_factory=dict)
    recorded: RecordedTimes | None = None
    say: Callable[[str], None] = lambda line: None

    def evaluate(self, backend: str, source: str) -> tuple[Attempt, Mapping[str, str]]:
        """See `steps.Evaluator`."""
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="tilebench-llm-") as folder:
            work = Path(folder)
            plugin = self.registry.backend(backend).value
            options = plugin.Options(**dict(self.config.backends[backend] or {}))
            kernel = write_site(work / "site", self.operator, backend, source, plugin(options).interpreted(self.device))
            registry = candidate_registry(self.registry, self.operator, kernel)
            campaign = Campaign(work / "records")
            campaign.folder.mkdir()
            results, status, reason = self._run(registry, backend, campaign, work, source)
            log = campaign.log_path.read_text(encoding="utf-8", errors="replace") if campaign.log_path.is_file() else ""
            lines = campaign.records_path.read_text(encoding="utf-8") if campaign.records_path.is_file() else ""
        diagnostic = None if status.is_clean else diagnostic_of(log, [str(work), SCRATCH])
        attempt = Attempt(
            backend=backend, status=status, reason=one_line(reason) if reason else None, diagnostic=diagnostic, cases=tuple(results),
            seconds=round(time.monotonic() - begun, 3),
        )  # fmt: skip
        return attempt, {f"{backend}-records.jsonl": lines, f"{backend}.log": log[-200_000:]}

    def _tasks(self, registry: Registry, backend: str) -> list[CaseTask]:
        """The cases as tasks of the plan, the smoke case in front of them where the protocol wants that."""
        kinds = ("smoke",) if self.config.protocol.smoke_first else ()
        wanted = "largest" if self.config.protocol.case == "largest" else "grid"
        dtypes = tuple(dict.fromkeys(case.dtype for case in self.cases))
        harness = self.config.harness(
            self.operator.folder, {backend: self.config.backends[backend]}, dtypes, (*kinds, wanted)
        )
        versions = backend_versions([self.registry.backend(backend)])
        return make_plan(registry, harness, self.device, versions, {})

    def _run(
        self, registry: Registry, backend: str, campaign: Campaign, work: Path, source: str
    ) -> tuple[list[CaseResult], Status, str | None]:
        tasks = self._tasks(registry, backend)
        runner = self._runner(backend, campaign, work)
        try:
            runner.start()  # it loads PyTorch and the DSL, and launches nothing, while other jobs have the GPU
            with device_lock(self.device, self.say):
                results, status, reason = self._cases(runner, tasks, backend, source)
        except WorkerFailed as error:
            raise EvaluatorError(
                f"the evaluator's worker did not start: {error}; {_tail(campaign.log_path)}"
            ) from error
        finally:
            runner.close()
        reached = {case_key(result.dtype, result.params) for result in results if result.kind != "smoke"}
        results += [
            CaseResult(dtype=case.dtype, params=dict(case.params), kind=case.kind, outcome="NOT_RUN")
            for case in self.cases
            if case_key(case.dtype, case.params) not in reached
        ]
        if status is Status.VERIFIED and all(result.median_us is not None for result in results):
            status = Status.VALID
        return results, status, reason

    def _cases(
        self, runner: Runner, tasks: list[CaseTask], backend: str, source: str
    ) -> tuple[list[CaseResult], Status, str | None]:
        """Run case after case until one says enough; the status is VERIFIED or the first failure's."""
        results: list[CaseResult] = []
        status, reason = Status.VERIFIED, None
        for task in tasks:
            (record,) = runner.run([task])[-1:]
            found, why = _status_of(record)
            if found is Status.NOT_EVALUATED:
                raise EvaluatorError(f"{self.operator.name} on {backend}: {record.outcome.value}: {why}")
            result = self._result(record, task.case, backend, source)
            results += [result] if task.case.kind != "smoke" or not found.is_clean else []
            if not found.is_clean and (status.is_clean or found in _ENOUGH):
                status, reason = found, f"{result.label}: {why}" if why else result.label
            if found in _ENOUGH or (task.case.kind == "smoke" and not found.is_clean):
                break
        return results, status, reason

    def _runner(self, backend: str, campaign: Campaign, work: Path) -> Runner:
        harness = self.config.harness(self.operator.folder, {backend: self.config.backends[backend]}, (), ())
        settings = {**session_settings(harness, self.device.alone, self.ceilings, SCRATCH), "results_dir": SCRATCH}
        wanted = {
            **worker_environment(self.registry, harness.backends, self.device),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(work / "site"), os.environ.get("PYTHONPATH")])),
            "TMPDIR": "/tmp",
        }
        environment = self.walls.environment(wanted)
        root = work / "root"
        root.mkdir()

        def start(settings: Mapping[str, Any], environment: Mapping[str, str], log: Path) -> Worker:
            def wrap(command: list[str]) -> list[str]:
                return self.walls.command(command, root, environment, extra=[str(work / "site")])

            return Worker(settings, environment, log, wrap=wrap, bare=True)

        return Runner(
            campaign=campaign, settings=settings, environment=environment, progress=Progress(), start_worker=start
        )

    def _result(self, record: Record, case: Case, backend: str, source: str) -> CaseResult:
        """One case's result; where nothing was timed, with the times that were recorded for the same source."""
        key = case_key(case.dtype, case.params)
        median_us, roofline_us, baseline_us = record.median_us, record.roofline_us, self.baseline_us.get(key)
        measured = "measured" if median_us is not None else None
        if measured is None and self.recorded is not None and record.outcome is Outcome.PASSED:
            known = self.recorded.find(digest(source), self.operator.name, backend, case)
            if known is not None:
                median_us, roofline_us, baseline_us, measured = (
                    known.median_us,
                    known.roofline_us,
                    known.baseline_us,
                    "recorded",
                )
        return CaseResult(
            dtype=case.dtype, params=dict(case.params), kind=case.kind, outcome=record.outcome.value,
            reason=one_line(record.reason) if record.reason and record.outcome is not Outcome.PASSED else None,
            median_us=median_us, roofline_us=roofline_us, baseline_us=baseline_us, config=record.config or None,
            launches=record.launches, activities=record.activities, max_abs_err=record.max_abs_err, time_source=measured,
        )  # fmt: skip


def _status_of(record: Record) -> tuple[Status, str | None]:
    """The status that one record stands for, and its reason."""
    reason = record.reason or ""
    if record.outcome in _OURS:
        return Status.NOT_EVALUATED, reason
    if FORBIDDEN in reason:
        return Status.VIOLATION, reason
    if NO_KERNEL in reason:
        return Status.NO_DEVICE_WORK, reason
    ended = re.search(r"exited with status (\d+)", reason)
    if record.outcome is Outcome.CRASHED and ended and int(ended.group(1)) in BLOCKED:
        return Status.BLOCKED, f"{BLOCKED[int(ended.group(1))]} ({reason})"
    if record.outcome is Outcome.PASSED:
        if not record.interpreted and record.device != "CPU" and not record.launches:
            return Status.NO_DEVICE_WORK, "the DSL launched no kernel"
        return Status.VERIFIED, None
    return Status(record.outcome.value), reason


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.is_file() else []
    return lines[-1] if lines else "it printed nothing"
