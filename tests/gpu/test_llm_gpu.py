"""The LLM track on a GPU: the demonstration's ten rounds, timed behind walls."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilebench_core.cli import main
from tilebench_core.llm.metrics import results_of
from tilebench_core.llm.run import trajectories_of
from tilebench_core.llm.status import End, Status

DEMO = Path(__file__).parents[2] / "docs" / "llm_demo" / "replies.yaml"


@pytest.mark.gpu
def test_the_demonstration_fails_regresses_recovers_and_freezes(tmp_path):
    status = main([
        "llm", "run", "operator=vector_add", "backend=triton", "dtype=fp32", "protocol=published", "model=scripted",
        f"model.options.script={DEMO}", f"results_dir={tmp_path}", "campaign=demo",
        "model.price={input: 2, output: 10, cached_input: 1}",
    ])  # fmt: skip
    assert status == 0
    ((_, done),) = trajectories_of(tmp_path / "demo")
    found = [attempt for _, attempt in done.attempts("triton")]
    assert [attempt.status for attempt in found] == [
        Status.COMPILE_ERROR, Status.WRONG, Status.VALID, Status.NO_CODE, Status.VALID, Status.VALID, Status.VIOLATION,
        Status.TRUNCATED, Status.VALID, Status.VALID,
    ]  # fmt: skip
    assert done.end is End.FROZEN
    shares = [attempt.lowest_share for attempt in found if attempt.lowest_share is not None]
    assert shares[0] < shares[2] < shares[1] < shares[3] < shares[4]
    assert all(case.launches == 1 for attempt in found for case in attempt.cases if case.outcome == "PASSED")
    (result,) = results_of([done])
    last = found[-1].cases[0]
    assert result.speedup == pytest.approx(last.baseline_us / last.median_us)
    assert result.per_mtoken == pytest.approx(result.speedup / (168_568 / 1e6))
