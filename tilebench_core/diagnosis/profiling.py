"""Profiling: trace what each job launches, capture under Nsight Compute, read the report back, and verify it."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tilebench_core.diagnosis.metrics import metric_arguments
from tilebench_core.diagnosis.ncu import Ncu, NcuFailed, absent_metrics, ncu_command, report_module_dir, run_ncu
from tilebench_core.diagnosis.profiles import Expected, Profile, attribute
from tilebench_core.diagnosis.selection import ProfileJob

__all__ = ["Profiler"]

_READ_LIMIT_S = 300.0


@dataclass
class Profiler:
    """Profiles jobs with one Nsight Compute. Everything that is printed and reported lies below `folder`.

    `keep` is handed each profile as soon as it is known, `say` one line for people. `limit_s` bounds the tracing or one
    capture, per job and process. Metrics that this Nsight Compute does not know are left out from then on.
    """

    ncu: Ncu
    folder: Path
    device: str
    environment: Mapping[str, str]
    metrics: str = "lean"
    replay: str = "application"
    limit_s: float = 120.0
    keep: Callable[[Profile], None] = lambda profile: None
    say: Callable[[str], None] = print
    absent: set[str] = field(default_factory=set)

    @property
    def drains(self) -> bool:
        """Kernel replay evicts the caches behind every kernel itself, so that nothing is left to drain."""
        return self.replay == "application"

    def run(self, jobs: Sequence[ProfileJob], batch: int) -> list[Profile]:
        """Profile `jobs`, `batch` of them in one process; raises NcuFailed where no capture can succeed on this machine."""
        profiles = []
        for start in range(0, len(jobs), batch):
            profiles += self._part(list(jobs[start : start + batch]))
        return profiles

    def _part(self, jobs: Sequence[ProfileJob]) -> list[Profile]:
        started, begun = _now(), time.monotonic()
        traced = self._trace(jobs)
        ready = {job: found for job, found in traced.items() if isinstance(found, Expected)}
        ended = {job: _failed(job, found, self, started) for job, found in traced.items() if isinstance(found, str)}
        if ready:
            ended |= self._capture(ready, started)
        seconds = (time.monotonic() - begun) / len(jobs)
        profiles = [replace(profile, seconds=round(seconds, 3)) for profile in ended.values()]
        for profile in profiles:
            self.keep(profile)
            state = "verified" if profile.verified else f"FAILED: {profile.reason}"
            self.say(f"{profile.job.label}: {state} ({seconds:.0f} s)")
        return profiles

    def _trace(self, jobs: Sequence[ProfileJob]) -> dict[ProfileJob, Expected | str]:
        """What each job launches, or why that is not known. A job that ends the process leaves the rest to another one."""
        found: dict[ProfileJob, Expected | str] = {}
        rest = list(jobs)
        while rest:
            answers, how = self._child("trace", rest)
            for job in rest:
                answer = answers.get(job.key, {})
                if "kernels" in answer:
                    found[job] = _expected(answer)
                elif "error" in answer:
                    found[job] = str(answer["error"])
                elif answer.get("started"):
                    found[job] = (
                        f"the process {how} while this was traced; what it printed is in {self.folder / 'logs'}"
                    )
            left = [job for job in rest if job not in found]
            if len(left) == len(rest):  # it died before its first job
                return found | dict.fromkeys(
                    left, f"the process {how} before anything was traced; see {self.folder / 'logs'}"
                )
            rest = left
        return found

    def _child(self, mode: str, jobs: Sequence[ProfileJob], command: Sequence[str] = ()) -> tuple[dict[str, Any], str]:
        """Run the capture program without ncu; its answers by key, and how it ended."""
        program, answers = self._program(mode, jobs)
        log = self.folder / "logs" / f"{jobs[0].key}.{mode}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as output:
            try:
                done = subprocess.run(program, stdout=output, stderr=output, timeout=self.limit_s * (1 + len(jobs)))
                how = f"ended with status {done.returncode}"
            except subprocess.TimeoutExpired:
                how = f"took longer than {self.limit_s * (1 + len(jobs)):.0f} s"
        return _answers(answers), how

    def _program(self, mode: str, jobs: Sequence[ProfileJob]) -> tuple[list[str], Path]:
        work = self.folder / "work"
        work.mkdir(parents=True, exist_ok=True)
        request, answers = work / f"{jobs[0].key}.{mode}.json", work / f"{jobs[0].key}.{mode}.answers"
        answers.unlink(missing_ok=True)
        content = {
            "device": self.device, "environment": dict(self.environment), "drain": self.drains,
            "jobs": [{"key": job.key, "job": job.as_json()} for job in jobs],
        }  # fmt: skip
        request.write_text(json.dumps(content, default=str), encoding="utf-8")
        return [sys.executable, "-m", "tilebench_core.diagnosis.capture", mode, str(request), str(answers)], answers

    def _capture(self, ready: Mapping[ProfileJob, Expected], started: str) -> dict[ProfileJob, Profile]:
        """Capture jobs in one process; where that fails, in halves, so that each failure is charged to one job."""
        jobs = list(ready)
        program, answers = self._program("profile", jobs)
        names = {name for expected in ready.values() for name in expected.main}
        names |= {name for expected in ready.values() for name in expected.drain if self.drains}
        report = self.folder / "reports" / f"{jobs[0].key}.ncu-rep"
        report.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._run_ncu(program, names, report, len(jobs))
            actions = self._read(report)
        except NcuFailed as error:
            if error.hopeless:
                raise
            if len(jobs) > 1:
                half = len(jobs) // 2
                parts = [{job: ready[job] for job in part} for part in (jobs[:half], jobs[half:])]
                return {job: profile for part in parts for job, profile in self._capture(part, started).items()}
            return {jobs[0]: _failed(jobs[0], str(error), self, started)}
        told = _answers(answers)
        ended = {}
        for job, expected in ready.items():
            try:
                if "error" in told.get(job.key, {}):
                    raise ValueError(told[job.key]["error"])
                launches, left = attribute(job, expected, names, self.drains, actions)
                ended[job] = Profile(
                    job=job, verified=True, launches=launches, auxiliary=expected.auxiliary, others=expected.others,
                    left_bytes=left, ncu=self.ncu.version, device=expected.device, started=started,
                )  # fmt: skip
            except ValueError as error:
                ended[job] = _failed(job, str(error), self, started)
        return ended

    def _run_ncu(self, program: Sequence[str], names: set[str], report: Path, jobs: int) -> None:
        log = self.folder / "logs" / f"{report.stem}.ncu.log"
        limit_s = self.limit_s * (2 + jobs)
        while True:
            asked = metric_arguments(self.metrics, self.absent)
            command = ncu_command(self.ncu, names, asked, report, self.replay, program)
            try:
                run_ncu(command, self.environment, log, limit_s)
                return
            except NcuFailed as error:
                unknown = absent_metrics(error.printed, asked)
                if not unknown:
                    raise
                self.absent |= unknown
                self.say(f"this Nsight Compute ({self.ncu.version}) has no {', '.join(sorted(unknown))}; left out")

    def _read(self, report: Path) -> list[dict[str, Any]]:
        """The report's launches, read by a process of its own; NcuFailed with the reason if it cannot be read."""
        if not report.is_file():
            raise NcuFailed(f"ncu wrote no report {report.name}; what it printed is in {self.folder / 'logs'}")
        answer = self.folder / "work" / f"{report.stem}.read.json"
        answer.unlink(missing_ok=True)
        module = report_module_dir(self.ncu)
        command = [sys.executable, "-m", "tilebench_core.diagnosis.reading", str(report), str(answer)]
        try:
            done = subprocess.run(
                [*command, *([module] if module else [])], capture_output=True, text=True, timeout=_READ_LIMIT_S
            )
        except subprocess.TimeoutExpired as error:
            raise NcuFailed(f"{report.name}: reading it took longer than {_READ_LIMIT_S:.0f} s") from error
        if done.returncode != 0 or not answer.is_file():
            lines = done.stderr.strip().splitlines() or [f"the reader ended with status {done.returncode}"]
            raise NcuFailed(f"{report.name} cannot be read: {lines[-1][:300]}")
        actions: list[dict[str, Any]] = json.loads(answer.read_text(encoding="utf-8"))
        if not actions:
            raise NcuFailed(f"{report.name} is damaged or holds no kernel: no launch can be read from it")
        return actions


def _expected(answer: Mapping[str, Any]) -> Expected:
    return Expected(
        kernels=tuple(answer["kernels"]), others=answer["others"], own=tuple(answer["own"]), drain=tuple(answer["drain"]),
        device=answer["device"],
    )  # fmt: skip


def _failed(job: ProfileJob, reason: str, profiler: Profiler, started: str) -> Profile:
    return Profile(job=job, verified=False, reason=reason or "unknown", ncu=profiler.ncu.version, started=started)


def _answers(path: Path) -> dict[str, Any]:
    """The last answer to each job; a line that a crash left unfinished is no answer."""
    found: dict[str, Any] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        found[answer["key"]] = answer
    return found


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
