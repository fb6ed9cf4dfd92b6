"""`cuda.tile.tune.exhaustive_search` over what `run` launches, with a benchmark that needs no GPU."""

import sys
from unittest import mock

import pytest
import torch
from tilebench_core import Kernel, LaunchError
from tilebench_core.errors import NotTunable

from tilebench_cutile.backend import CutileBackend

if sys.platform != "linux":
    pytest.skip("cuda-tile is a Linux package", allow_module_level=True)

CONFIGS = [{"TILE": 64, "warps": 4}, {"TILE": 128, "warps": 4}, {"TILE": 256, "warps": 8}]
X = torch.zeros(1024)


def scale(x: torch.Tensor, *, TILE: int, warps: int, launches: int = 1) -> torch.Tensor:
    import cuda.tile as ct

    from .kernels import scale_kernel

    y = torch.empty_like(x)
    hinted = scale_kernel.replace_hints(num_worker_warps=warps)
    for _ in range(launches):
        ct.launch(torch.cuda.current_stream(), (x.numel() // TILE,), hinted, (x, y, TILE))
    return y


def searched(run, configs, benchmark):
    """`CutileBackend.autotune`, where cuTile's benchmark of one launch is replaced."""
    from tilebench_cutile.absent import absent_gpu

    with absent_gpu():
        from cuda.tile.tune import _tune

        with mock.patch.object(_tune, "_benchmark", benchmark):
            return CutileBackend().autotune(Kernel(run=run), (X,), configs)


def test_cutile_is_given_the_kernel_grid_and_arguments_of_each_configuration():
    seen = set()

    def benchmark(stream, grid, kernel, arguments, flush):
        seen.add((grid, kernel._compiler_options.num_worker_warps, arguments[2], arguments[0] is X, flush))
        return {64: 30.0, 128: 10.0, 256: 20.0}[arguments[2]]

    found = searched(scale, CONFIGS, benchmark)
    assert found.winner == CONFIGS[1]
    assert [candidate.time_us for candidate in found.candidates] == [30.0, 10.0, 20.0]
    assert seen == {((16,), 4, 64, True, True), ((8,), 4, 128, True, True), ((4,), 8, 256, True, True)}


def test_a_candidate_that_fails_costs_cutile_one_candidate():
    def benchmark(stream, grid, kernel, arguments, flush):
        if arguments[2] == 128:
            raise RuntimeError("no room\nfor it")
        return float(arguments[2])

    found = searched(scale, CONFIGS, benchmark)
    assert (found.winner, found.candidates[1].failure) == (CONFIGS[0], "RuntimeError: no room")


def test_no_configuration_that_works_is_a_failed_launch():
    def benchmark(*arguments):
        raise RuntimeError("no room")

    with pytest.raises(LaunchError, match="No valid config found"):
        searched(scale, CONFIGS, benchmark)


def test_a_run_of_two_kernels_cannot_be_given_to_cutiles_tuner():
    configs = [CONFIGS[0], {**CONFIGS[1], "launches": 2}]
    with pytest.raises(NotTunable, match=r"times a single kernel, and run launches 2 with \{'TILE': 128"):
        searched(scale, configs, None)
