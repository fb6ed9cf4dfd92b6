"""The state machine of a trajectory: what is on disk says which step comes next, and a step does one thing and keeps it.

prompt → sent → response → usage → candidate → compliance → evaluation → feedback, and then the next round or the end. A
run that is killed between any two steps goes on with the next; a reply that is on disk is never asked for again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from tilebench_core.llm.archive import Archive, digest
from tilebench_core.llm.attempts import Attempt
from tilebench_core.llm.budget import NextRequest, worst_case
from tilebench_core.llm.compliance import check_source
from tilebench_core.llm.config import ModelSettings
from tilebench_core.llm.prompts import Prompter
from tilebench_core.llm.provider import Provider, ProviderError, Request
from tilebench_core.llm.reply import Candidate, candidates_in, file_name
from tilebench_core.llm.retry import send_patiently
from tilebench_core.llm.rounds import Trajectory, file_in, read_trajectory
from tilebench_core.llm.status import End, Status
from tilebench_core.llm.usage import Price, Usage, cost_of

__all__ = ["STEPS", "Evaluator", "Machine", "Stopped"]

STEPS = ("prompt", "sent", "response", "usage", "candidate", "compliance", "evaluation", "feedback")


class Stopped(Exception):
    """The user asked to stop; everything that was achieved is on disk."""


class Evaluator(Protocol):
    """Compiles, verifies and times one candidate behind walls."""

    def evaluate(self, backend: str, source: str) -> tuple[Attempt, Mapping[str, str]]:
        """The attempt, its verdict left open, and texts to archive by file name. Raises EvaluatorError where it cannot."""


class _OverBudget(Exception):
    """A failed attempt may have cost so much that a repetition could exceed a budget."""


@dataclass
class Machine:
    """One trajectory and everything that its steps need. `budgets` is asked before a request is sent."""

    archive: Archive
    key: Mapping[str, Any]
    prompter: Prompter
    provider: Provider
    model: ModelSettings
    price: Price | None
    evaluator: Evaluator
    budgets: Callable[[Trajectory, NextRequest], str | None]
    stopped: Callable[[], bool] = lambda: False
    progress: Callable[[str], None] = lambda line: None
    after_step: Callable[[str], None] = lambda event: None
    sleep: Callable[[float], None] = time.sleep
    _announced: bool = False

    def run(self) -> Trajectory:
        """Take steps until the trajectory has ended. Raises Stopped, ProviderError and EvaluatorError; all can be resumed."""
        while True:
            trajectory = read_trajectory(self.archive)
            if trajectory.end is not None and not self._affordable_now(trajectory):
                return trajectory
            if self.stopped():
                raise Stopped
            event = self.step(trajectory)
            self.after_step(event)

    def _affordable_now(self, trajectory: Trajectory) -> bool:
        """True for a trajectory that a budget ended, where the budget is larger now."""
        if trajectory.end is not End.BUDGET:
            return False
        return self._too_much(trajectory, self.archive.read(file_in(trajectory.rounds[-1].number, "prompt.md"))) is None

    def step(self, trajectory: Trajectory) -> str:
        """Do the next step and return its event."""
        rounds = trajectory.rounds
        if not rounds or rounds[-1].complete:
            end = self._end(trajectory)
            if end is not None:
                self.archive.record("end", None, end=end[0].value, reason=end[1])
                return "end"
            self._prompt(trajectory, len(rounds))
            return "prompt"
        number = rounds[-1].number
        if self.archive.find("response", number) is None and self.archive.unjournaled(file_in(number, "response.json")):
            # The reply came and was paid for; the crash came before the line that names it.
            self.archive.record("response", number, (file_in(number, "response.json"),), adopted=True)
            return "response"
        # A request is announced on disk before it goes out, so that a crash in between cannot hide what it may have cost.
        if self.archive.find("response", number) is None:
            return self._send(trajectory, number)
        event = next(
            step for step in STEPS if step not in ("prompt", "sent") and self.archive.find(step, number) is None
        )
        getattr(self, f"_{event}")(number, rounds[-1].backends)
        return event

    def _end(self, trajectory: Trajectory) -> tuple[End, str] | None:
        protocol = self.prompter.protocol
        if trajectory.rounds and set(trajectory.frozen) == set(self.prompter.backends):
            return End.FROZEN, f"every backend reached {protocol.freeze_at:.0%} of the roofline"
        if len(trajectory.rounds) >= protocol.rounds:
            return End.ROUNDS, f"{protocol.rounds} rounds"
        return None

    def _prompt(self, trajectory: Trajectory, number: int) -> None:
        text = self.prompter.prompt(trajectory, self.archive, number)
        backends = [backend for backend in self.prompter.backends if backend not in trajectory.frozen]
        request = {
            "provider": self.provider.name, "model": self.model.name, "sampling": self.model.sampling, "backends": backends,
            "prompt_sha256": digest(text),
        }  # fmt: skip
        contents = {file_in(number, "prompt.md"): text, file_in(number, "request.json"): request}
        self.archive.keep("prompt", number, contents, backends=backends, bytes=len(text.encode()))

    def _send(self, trajectory: Trajectory, number: int) -> str:
        """Announce the request, or, where this process has announced it, send it and keep the reply."""
        last = [
            e.event
            for e in self.archive.entries
            if e.round == number and e.event in ("prompt", "sent", "attempt", "lost")
        ][-1]
        text = self.archive.read(file_in(number, "prompt.md"))
        if last != "sent":
            reason = self._too_much(trajectory, text)
            if reason is not None:
                return self._over_budget(reason)
            self.archive.record("sent", number)
            self._announced = True
            return "sent"
        if not self._announced:
            # An earlier process died while it waited for this reply, which may have been charged.
            self.archive.record("lost", number, reason="the run ended while it waited for the reply")
            return "lost"
        self._announced = False
        request = Request(
            model=self.model.name, prompt=text, key={**self.key, "round": number, "asked": list(trajectory.rounds[-1].backends)},
            deadline_s=self.model.deadline_s, **self.model.sampling,
        )  # fmt: skip
        begun = time.monotonic()
        try:
            reply = send_patiently(
                self.provider, request, self.model.retries,
                attempt_failed=lambda failure: self._attempt_failed(number, text, failure),
                announce=lambda: self._announce(number),
                stopped=self.stopped, sleep=self.sleep,
            )  # fmt: skip
        except _OverBudget as over:
            return self._over_budget(str(over))
        except ProviderError:
            if self.stopped():
                raise Stopped from None
            raise
        values = {**asdict(reply), "raw_usage": dict(reply.raw_usage)}
        seconds = round(time.monotonic() - begun, 3)
        self.archive.keep("response", number, {file_in(number, "response.json"): values}, seconds=seconds)
        return "response"

    def _announce(self, number: int) -> None:
        self.archive.record("sent", number)

    def _too_much(self, trajectory: Trajectory, text: str) -> str | None:
        """Why the request of `text` could exceed a budget, or None."""
        return self.budgets(trajectory, worst_case(text, self.model.max_output_tokens, trajectory.rounds, self.price))

    def _over_budget(self, reason: str) -> str:
        self.archive.record("end", None, end=End.BUDGET.value, reason=reason)
        return "end"

    def _attempt_failed(self, number: int, text: str, failure: Mapping[str, Any]) -> None:
        self.archive.record("attempt", number, **failure)
        self.progress(f"round {number + 1}: attempt {failure['attempt']} failed: {failure['reason']}")
        if failure["retry"] and failure["may_cost"]:
            reason = self._too_much(read_trajectory(self.archive), text)
            if reason is not None:
                raise _OverBudget(reason)

    def _usage(self, number: int, backends: Sequence[str]) -> None:
        reply = self.archive.load(file_in(number, "response.json"))
        usage = Usage(**reply["usage"])
        cost = cost_of(usage, self.price)
        content = {
            "usage": asdict(usage), "tokens": usage.tokens.value, "tokens_complete": usage.tokens.complete,
            "cost_usd": cost.value, "cost_complete": cost.complete, "price": asdict(self.price) if self.price else None,
        }  # fmt: skip
        self.archive.keep("usage", number, {file_in(number, "usage.json"): content})

    def _candidate(self, number: int, backends: Sequence[str]) -> None:
        reply = self.archive.load(file_in(number, "response.json"))
        found = candidates_in(reply["text"], reply["finish"], backends)
        contents: dict[str, Any] = {}
        about = {}
        for backend, candidate in found.items():
            file = f"candidate/{file_name(backend)}" if candidate.source is not None else None
            if candidate.source is not None:
                contents[file_in(number, str(file))] = candidate.source
            about[backend] = {
                "file": file, "problem": candidate.problem.value if candidate.problem else None, "reason": candidate.reason,
            }  # fmt: skip
        contents[file_in(number, "candidate.json")] = about
        self.archive.keep("candidate", number, contents)

    def _found(self, number: int) -> dict[str, Candidate]:
        about = self.archive.load(file_in(number, "candidate.json"))
        return {
            backend: Candidate(
                backend=backend,
                source=self.archive.read(file_in(number, row["file"])) if row["file"] else None,
                problem=Status(row["problem"]) if row["problem"] else None,
                reason=row["reason"],
            )
            for backend, row in about.items()
        }

    def _compliance(self, number: int, backends: Sequence[str]) -> None:
        checked = {
            backend: check_source(candidate.source, backend).to_json()
            for backend, candidate in self._found(number).items()
            if candidate.source is not None and candidate.problem is None
        }
        self.archive.keep("compliance", number, {file_in(number, "compliance.json"): checked})

    def _evaluation(self, number: int, backends: Sequence[str]) -> None:
        begun = time.monotonic()
        compliance = self.archive.load(file_in(number, "compliance.json"))
        attempts: dict[str, Any] = {}
        contents: dict[str, Any] = {}
        for backend, candidate in self._found(number).items():
            attempt, texts = self._judge(candidate, compliance.get(backend))
            attempts[backend] = attempt.to_json()
            contents.update({file_in(number, f"evaluation/{name}"): text for name, text in texts.items()})
            self.progress(
                f"round {number + 1}: {backend} {attempt.status.value}{': ' + attempt.reason if attempt.reason else ''}"
            )
        contents[file_in(number, "evaluation.json")] = {"attempts": attempts}
        self.archive.keep("evaluation", number, contents, seconds=round(time.monotonic() - begun, 3))

    def _judge(self, candidate: Candidate, compliance: Mapping[str, Any] | None) -> tuple[Attempt, Mapping[str, str]]:
        if candidate.source is None or candidate.problem is not None:
            status = candidate.problem or Status.NO_CODE
            return Attempt(backend=candidate.backend, status=status, reason=candidate.reason), {}
        assert compliance is not None
        verdict, sha = compliance["verdict"], digest(candidate.source)
        if verdict == "violation":
            first = next(row for row in compliance["findings"] if row["verdict"] == "violation")
            reason = f"line {first['line']}: {first['message']} ({first['rule']})"
            violation = Attempt(
                backend=candidate.backend, status=Status.VIOLATION, reason=reason, verdict=verdict, source_sha256=sha
            )
            return violation, {}
        attempt, texts = self.evaluator.evaluate(candidate.backend, candidate.source)
        values = {**attempt.__dict__, "verdict": verdict, "source_sha256": sha}
        if attempt.status.is_clean and verdict not in self.prompter.protocol.accept:
            first = next(row for row in compliance["findings"] if row["verdict"] == verdict)
            values |= {
                "status": Status.NEEDS_REVIEW,
                "reason": f"line {first['line']}: {first['message']} ({first['rule']})",
            }
        return Attempt(**values), texts

    def _feedback(self, number: int, backends: Sequence[str]) -> None:
        trajectory = read_trajectory(self.archive)
        attempts = trajectory.rounds[-1].attempts
        compliance = self.archive.load(file_in(number, "compliance.json"))
        findings = {backend: row["findings"] for backend, row in compliance.items()}
        text = self.prompter.feedback(attempts, findings)
        limit = self.prompter.protocol.freeze_at
        frozen = [
            backend
            for backend, attempt in sorted(attempts.items())
            if limit is not None and attempt.lowest_share is not None and attempt.lowest_share >= limit
        ]
        self.archive.keep("feedback", number, {file_in(number, "feedback.md"): text}, frozen=frozen)
