"""TileLang's `AutoTuner` over what `run` launches: elaborated here, with compiler and profiler replaced."""

import json

import pytest
import tilelang
import tilelang.language as T
import torch
from tilebench_core import Kernel, LaunchError
from tilebench_core.errors import NotTunable

from tilebench_tilelang import native
from tilebench_tilelang.backend import TilelangBackend

CONFIGS = [{"BLOCK": 64, "threads": 64}, {"BLOCK": 128, "threads": 64}, {"BLOCK": 256, "threads": 128}]
X = torch.zeros(1024)


@tilelang.jit
def scale_kernel(BLOCK: int, threads: int):
    n = T.dynamic("n")

    @T.prim_func
    def scale(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, BLOCK), threads=threads) as block:
            for i in T.Parallel(BLOCK):
                y[block * BLOCK + i] = x[block * BLOCK + i] * 2

    return scale


def scale(x, *, BLOCK, threads, launches=1):
    y = torch.empty_like(x)
    for _ in range(launches):
        scale_kernel(BLOCK, threads)(x, y)
    return y


class Compiled:
    """Stands for a compiled kernel and for its profiler."""

    def __init__(self, block: int, times_ms, supplied) -> None:
        self.block, self.times_ms, self.supplied, self.prim_func = block, times_ms, supplied, None

    def get_profiler(self, tensor_supply_type):
        return self

    def _get_params(self, with_output):
        return []

    def do_bench(self, *, input_tensors, **_):
        self.supplied.append(input_tensors)
        return self.times_ms[self.block]

    def update_tuner_result(self, **_):
        return self

    def get_kernel_source(self):
        return ""


@pytest.fixture
def tuned(monkeypatch, tmp_path):
    """`TilelangBackend.autotune` in a folder of its own; `times_ms` maps BLOCK to a time, one that it lacks fails."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", json.dumps({"kind": "cuda", "arch": "sm_90a"}))
    monkeypatch.setenv("TILELANG_EXECUTION_BACKEND", "tvm_ffi")
    supplied = []

    def run(times_ms, configs=CONFIGS):
        def compiled(factory, function):
            assert factory is scale_kernel
            block = next(c["BLOCK"] for c in configs if f"T.parallel({c['BLOCK']})" in str(function))
            if block not in times_ms:
                raise RuntimeError("nvcc says no")
            return Compiled(block, times_ms, supplied)

        monkeypatch.setattr(native, "_compile", compiled)
        return TilelangBackend().autotune(Kernel(run=scale), (X,), configs)

    return run, supplied, tmp_path


def test_tilelang_is_given_the_kernel_and_the_tensors_of_each_configuration(tuned):
    run, supplied, folder = tuned
    found = run({64: 0.03, 128: 0.01, 256: 0.02})
    assert found.winner == CONFIGS[1]
    assert [candidate.time_us for candidate in found.candidates] == pytest.approx([30.0, 10.0, 20.0])
    assert [len(tensors) for tensors in supplied] == [2, 2, 2]
    assert all(tensors[0] is X for tensors in supplied)
    assert all(candidate.compile_s > 0 for candidate in found.candidates)
    assert list(folder.iterdir()) == [], "TileLang's tuner leaves its log where it runs"


def test_a_candidate_that_does_not_compile_costs_tilelang_one_candidate(tuned):
    found = tuned[0]({64: 0.03, 256: 0.02})
    assert (found.winner, found.candidates[1].failure) == (CONFIGS[2], "RuntimeError: nvcc says no")


def test_no_configuration_that_works_is_a_failed_launch(tuned):
    with pytest.raises(LaunchError, match="Auto-tuning failed"):
        tuned[0]({})


def test_a_run_of_two_kernels_cannot_be_given_to_tilelangs_tuner(tuned):
    with pytest.raises(NotTunable, match=r"times a single kernel, and run launches 2 with \{'BLOCK': 128"):
        tuned[0]({}, [CONFIGS[0], {**CONFIGS[1], "launches": 2}])
