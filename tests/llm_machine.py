"""A trajectory whose provider and evaluator are scripted in Python: the state machine alone, in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tilebench_core.llm.archive import Archive
from tilebench_core.llm.attempts import Attempt, CaseResult
from tilebench_core.llm.config import ModelSettings
from tilebench_core.llm.protocol import Protocol
from tilebench_core.llm.provider import Provider, ProviderSettings, Reply
from tilebench_core.llm.retry import Retries
from tilebench_core.llm.status import Status
from tilebench_core.llm.steps import Machine
from tilebench_core.llm.usage import Price, Usage

KERNEL = """\
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


def run(x):
    # {note}
    y = torch.empty_like(x)
    kernel[(1,)](x, y, x.numel(), BLOCK=1024)
    return y
"""
PUBLISHED = Protocol(
    name="published", unit="joint", rounds=10, case="largest", freeze_at=0.8, feedback="scores", history="trajectory",
    parameters="config", metric="speedup_per_mtoken",
)  # fmt: skip
PRICE = Price(model="m", as_of="2025-01-01", input=2.0, output=10.0, cached_input=1.0)


def block(note: str, backend: str = "triton", source: str | None = None) -> str:
    return f"`impl_{backend}.py`\n```python\n{source or KERNEL.replace('{note}', note)}```\n"


@dataclass
class PlainPrompter:
    """What the machine needs of a Prompter, without operators."""

    protocol: Protocol
    backends: tuple[str, ...]

    def prompt(self, trajectory, archive, number) -> str:
        return f"round {number}, frozen: {sorted(trajectory.frozen)}\n" + "material " * 50

    def feedback(self, attempts, findings) -> str:
        return "\n".join(f"{backend}: {attempt.status.value}" for backend, attempt in sorted(attempts.items()))


class ListProvider(Provider):
    """Answers round n with the n-th reply, and writes every request to a file: that is what was paid for."""

    name = "list"

    def __init__(self, replies: Sequence[str], paid: Path, finish: str = "stop", usage: Usage | None = None) -> None:
        super().__init__(ProviderSettings())
        self.replies, self.paid, self.finish = replies, paid, finish
        self.usage = usage or Usage(input_tokens=1000, cached_input_tokens=0, output_tokens=500, reasoning_tokens=100)

    def send(self, request, progress) -> Reply:
        with self.paid.open("a") as file:
            file.write(f"{request.key['round']}\n")
        return Reply(text=self.replies[request.key["round"]], finish=self.finish, usage=self.usage, model="m")


@dataclass
class NotedEvaluator:
    """Judges a candidate by the word in its comment: a status, and for VALID the time in microseconds after it."""

    roofline_us: float = 8.0
    baseline_us: float = 20.0
    evaluated: list[str] = field(default_factory=list)

    def evaluate(self, backend, source):
        note = next(line for line in source.splitlines() if line.strip().startswith("# ")).strip()[2:]
        self.evaluated.append(note)
        status, _, time_us = note.partition(" ")
        outcome = "PASSED" if status in ("VALID", "VERIFIED") else status
        case = CaseResult(
            dtype="fp16", params={"n": 8}, kind="grid", outcome=outcome, median_us=float(time_us) if time_us else None,
            roofline_us=self.roofline_us, baseline_us=self.baseline_us, time_source="measured",
            reason=None if outcome == "PASSED" else "as told",
        )  # fmt: skip
        return Attempt(backend=backend, status=Status(status), cases=(case,)), {f"{backend}.log": "log\n"}


def machine(
    folder: Path, provider: Provider, *, backends=("triton",), protocol: Protocol = PUBLISHED, price: Price | None = PRICE,
    evaluator=None, budgets: Callable = lambda trajectory, worst: None, **values,
) -> Machine:  # fmt: skip
    archive = Archive.open(folder)
    key = {"operator": "copy", "backends": list(backends), "dtypes": ["fp16"], "condition": protocol.name, "model": "m"}
    if archive.find("trajectory") is None:
        archive.keep("trajectory", None, {"trajectory.json": {"key": key, "model": "m"}})
    return Machine(
        archive=archive, key=key, prompter=PlainPrompter(protocol, backends), provider=provider,
        model=ModelSettings(provider="list", name="m", retries=Retries(attempts=2, first_wait_s=0.0)), price=price,
        evaluator=evaluator or NotedEvaluator(), budgets=budgets, **values,
    )  # fmt: skip
