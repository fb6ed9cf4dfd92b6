"""`triton.autotune` over whole operators, with a benchmarker that needs no GPU."""

from __future__ import annotations

import pytest
import triton
from tilebench_core import Kernel, LaunchError

from tilebench_triton.backend import TritonBackend
from tilebench_triton.native import autotuned

CONFIGS = [{"BLOCK": 64, "num_warps": 1}, {"BLOCK": 128, "num_warps": 4, "num_stages": 2}, {"BLOCK": 256}]
TIMES_MS = {64: 0.03, 128: 0.01, 256: 0.02}


class Operator:
    """Stands for a kernel's `run`: notes what it was called with, and fails where it is told to."""

    def __init__(self, failures: dict[int, Exception] | None = None) -> None:
        self.calls: list[dict] = []
        self.failures = failures or {}

    def __call__(self, x, *, BLOCK, **more):
        self.calls.append({"BLOCK": BLOCK, **more})
        if BLOCK in self.failures:
            raise self.failures[BLOCK]
        return x

    def bench(self, call, quantiles):
        call()
        return [TIMES_MS[self.calls[-1]["BLOCK"]]] * len(quantiles)


def test_triton_chooses_the_fastest_and_calls_run_with_each_configuration_as_it_is():
    operator = Operator()
    found = autotuned(operator, (1,), CONFIGS, operator.bench)
    assert found.winner == CONFIGS[1]
    assert [candidate.time_us for candidate in found.candidates] == pytest.approx([30.0, 10.0, 20.0])
    assert operator.calls == [*CONFIGS, CONFIGS[1]]
    assert all(candidate.compile_s is not None for candidate in found.candidates)


def test_what_exceeds_the_resources_costs_triton_one_candidate():
    operator = Operator({128: triton.runtime.errors.OutOfResources(300000, 232448, "shared memory")})
    found = autotuned(operator, (1,), CONFIGS, operator.bench)
    assert found.winner == CONFIGS[2]
    assert found.candidates[1].time_us is None
    assert found.candidates[1].failure.startswith("OutOfResources: out of resource: shared memory, Required: 300000")


def test_any_other_exception_ends_tritons_search_and_the_trial_says_which(monkeypatch):
    operator = Operator({128: RuntimeError("no such tile")})
    original = triton.autotune
    monkeypatch.setattr(triton, "autotune", lambda **given: original(**{**given, "do_bench": operator.bench}))
    with pytest.raises(LaunchError, match="RuntimeError: no such tile"):
        TritonBackend().autotune(Kernel(run=operator), (1,), CONFIGS)


def test_no_configuration_that_works_is_a_failed_launch():
    too_large = triton.runtime.errors.OutOfResources(300000, 232448, "shared memory")
    operator = Operator(dict.fromkeys(TIMES_MS, too_large))
    with pytest.raises(LaunchError, match="none of 3 configurations works: OutOfResources: out of resource"):
        autotuned(operator, (1,), CONFIGS, operator.bench)


def test_a_cache_of_tritons_own_winners_is_not_asked(monkeypatch):
    monkeypatch.setattr(triton.knobs.autotuning, "cache", True)
    operator = Operator()
    for _ in range(2):
        autotuned(operator, (1,), CONFIGS, operator.bench)
    assert len(operator.calls) == 8
