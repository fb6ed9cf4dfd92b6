"""The evaluator: candidates that the static check did not stop go through the harness behind walls, and cost only themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilebench_core.compose import compose
from tilebench_core.device import CPU
from tilebench_core.llm.config import Isolation, llm_config
from tilebench_core.llm.diagnostics import diagnostic_of, one_line
from tilebench_core.llm.evaluate import EvaluatorError, HarnessEvaluator
from tilebench_core.llm.guard import DIAGNOSTIC
from tilebench_core.llm.status import Status
from tilebench_core.llm.walls.spec import Walls
from tilebench_core.plan import planned_operators
from tilebench_core.registry import installed

GOOD = """\
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=float("-inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * cols + i, e / tl.sum(e, 0), mask=i < cols)


def run(x):
    y = torch.empty_like(x)
    kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
"""

PATCH = "import torch\nimport tilebench_core.verify.protocol as p\np.compare_outputs = None\n"
FORKS = "import os, time\n    for _ in range(9): os.fork()\n    time.sleep(60)"


@pytest.fixture(scope="module")
def evaluator() -> HarnessEvaluator:
    registry = installed()
    config = llm_config(compose(registry, [
        "operator=softmax", "backend=triton", "model=scripted", "model.options.script=none", "dtype=fp32", "device=cpu",
        "operators.softmax.case_grid={rows: [4], cols: [64, 300]}",
    ], llm=True))  # fmt: skip
    ((operator, _),) = planned_operators(registry, config.harness_operators())
    walls = Walls.around(
        "namespaces", Isolation(memory_gb=6, processes=200), ["tilebench_operators", "tilebench_triton"], CPU
    )
    return HarnessEvaluator(
        registry=registry, config=config, operator=operator, cases=operator.config.cases("fp32"), device=CPU,
        ceilings=None, walls=walls,
    )  # fmt: skip


def test_an_honest_candidate_is_verified_on_every_case_and_never_timed(evaluator):
    attempt, texts = evaluator.evaluate("triton", GOOD)
    assert (attempt.status, attempt.passed, attempt.planned) == (Status.VERIFIED, 2, 2)
    assert (attempt.speedup, attempt.efficiency, attempt.diagnostic) == (None, None, None)
    assert texts["triton-records.jsonl"].count("\n") == 3  # the smoke case and two of the grid
    assert "tilebench-llm-candidate 0+" in texts["triton-records.jsonl"]


@pytest.mark.parametrize(
    ("status", "reason", "change"),
    [
        (Status.VIOLATION, "PyTorch computed softmax", ("return y", "return torch.softmax(x, -1)")),
        (Status.VIOLATION, "compare_outputs was replaced", ("import torch\n", PATCH)),
        (Status.BLOCKED, "than allowed", ("return y", FORKS)),
    ],
)  # fmt: skip
def test_what_gets_past_the_static_check_is_stopped_at_run_time(evaluator, status, reason, change):
    attempt, _ = evaluator.evaluate("triton", GOOD.replace(*change))
    assert attempt.status is status, attempt
    assert reason in attempt.reason
    assert attempt.passed == 0
    assert [case.outcome for case in attempt.cases][1:] == ["NOT_RUN", "NOT_RUN"]


def test_a_candidate_that_hangs_costs_its_time_limit_and_nothing_else(evaluator):
    impatient = replace(
        evaluator, config=replace(evaluator.config, limits=replace(evaluator.config.limits, compile_s=4.0))
    )
    attempt, _ = impatient.evaluate("triton", GOOD.replace("return y", "while True: pass"))
    assert attempt.status is Status.TIMEOUT
    assert "'compile'" in attempt.reason


def test_an_evaluator_without_its_worker_blames_nobody(evaluator):
    blind = replace(evaluator, walls=replace(evaluator.walls, readable=("/usr",)))
    with pytest.raises(EvaluatorError, match="did not start"):
        blind.evaluate("triton", GOOD)


def test_a_diagnostic_holds_the_candidate_and_nothing_of_this_machine():
    log = (
        f"noise\n{DIAGNOSTIC}\nTraceback (most recent call last):\n"
        '  File "/home/someone/.venv/lib/triton/x.py", line 3, in f\n    secret()\n'
        '  File "/tmp/work/site/p/softmax/candidate_triton.py", line 6, in kernel\n    e = tl.nope(x)\n'
        "\x1b[31mValueError\x1b[0m: at 0x7f00deadbeef in /home/someone/thing ```\n"
    )
    found = diagnostic_of(log, ["/tmp/work"])
    assert "e = tl.nope(x)" in found
    assert "impl_triton.py" in found
    assert "secret()" not in found
    assert "ValueError: at 0x… in thing '''" in found
    assert "someone" not in found
    assert diagnostic_of("nothing") is None
    assert one_line("a\nb  c") == "a b c"
