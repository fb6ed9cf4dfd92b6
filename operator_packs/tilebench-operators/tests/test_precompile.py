"""Compiling ahead of a campaign, with real kernels and compilers and without a GPU."""

import time

import pytest
from tilebench_core.compose import compose
from tilebench_core.config import run_config
from tilebench_core.device import target_device
from tilebench_core.jobs import worker_environment
from tilebench_core.plan import make_plan
from tilebench_core.precompile.pool import Precompiler
from tilebench_core.registry import installed


@pytest.mark.parametrize("backend", ["triton", "cutile", "tilelang"])
def test_every_kernel_of_a_campaign_is_compiled_ahead(backend, tmp_path, monkeypatch):
    pytest.importorskip({"triton": "triton", "cutile": "cuda.tile", "tilelang": "tilelang"}[backend])
    for variable in ("TILEBENCH_CACHE", "TRITON_CACHE_DIR", "CUDA_TILE_CACHE_DIR", "TILELANG_CACHE_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    registry = installed()
    hopper = target_device("sm_90")
    asked = ["operator=[vector_add]", f"backend=[{backend}]", "dtype=[fp16]", "cases=[smoke,first]", "tune.workers=1"]
    config = run_config(compose(registry, asked))
    versions = {backend: {backend: "1"}, "torch": {"torch": "2"}}
    tasks = make_plan(registry, config, hopper, versions, {})
    said: list[str] = []
    environment = worker_environment(registry, config.backends, hopper)
    ahead = Precompiler(tasks, config, hopper, environment, tmp_path / "log", said.append)
    try:
        deadline = time.monotonic() + 200
        while not said and time.monotonic() < deadline:
            ahead.wait(5)
            ahead.report()
        assert all(ahead.ready(task) for task in tasks)
        (line,) = said
        assert line.startswith("compiled 2 configurations ahead"), line
        assert "failed" not in line
    finally:
        ahead.close()
    assert any(path.is_file() for path in tmp_path.rglob("*") if path.name != "log")


def test_a_case_that_shares_a_winner_is_compiled_after_the_one_that_is_searched_for_it(tmp_path, monkeypatch):
    pytest.importorskip("triton")
    for variable in ("TILEBENCH_CACHE", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    registry = installed()
    hopper = target_device("sm_90")
    asked = ["operator=[softmax]", "backend=[triton]", "dtype=[fp16]", "cases=[0,1]", "mode=[tuned]", "tune.workers=1"]
    config = run_config(compose(registry, [*asked, "tune=shared", "tune.share=dtype", "tune.share_within=64"]))
    small, large = make_plan(registry, config, hopper, {"triton": {"triton": "1"}}, {})
    environment = worker_environment(registry, config.backends, hopper)
    ahead = Precompiler([small, large], config, hopper, environment, tmp_path / "log", lambda line: None)
    try:
        for task, before in ((large, None), (small, large)):
            assert not ahead.ready(task)
            if before is not None:
                assert ahead.idle
                ahead.finished(before)
            deadline = time.monotonic() + 100
            while not ahead.ready(task) and time.monotonic() < deadline:
                ahead.wait(5)
            assert ahead.ready(task), (tmp_path / "log").read_text()
    finally:
        ahead.close()
