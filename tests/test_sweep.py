"""`-m` runs every combination into one campaign, whatever launches the jobs, and the worst exit status is the sweep's."""

from __future__ import annotations

import importlib.util

import pytest
from distributions import FAULTY, environment, tilebench

from tilebench_core.records import RecordReader

LAUNCHERS = ["basic", "joblib"]


@pytest.fixture(scope="module", params=LAUNCHERS)
def swept(request, tmp_path_factory):
    launcher = request.param
    if launcher == "joblib" and importlib.util.find_spec("hydra_plugins.hydra_joblib_launcher") is None:
        pytest.skip("hydra-joblib-launcher is not installed: pip install 'tilebench[joblib]'")
    folder = tmp_path_factory.mktemp(launcher)
    env = environment(folder / "site", FAULTY)
    more = [] if launcher == "basic" else ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    done = tilebench(
        ["run", "-m", "operator=faulty_affine", "backend=[torch,faulty]", "dtype=fp32,int32", "timing=quick", "device=cpu",
         "tracking=none", "figures=false", "results_dir=r", "operators.faulty_affine.case_grid.fault=[right,zeros]", *more],
        env, folder,
    )  # fmt: skip
    return done, folder


def test_all_jobs_of_a_sweep_write_to_one_campaign(swept):
    done, folder = swept
    campaigns = list((folder / "r").glob("*/records.jsonl"))
    assert len(campaigns) == 1, done.stdout + done.stderr
    reader = RecordReader(campaigns[0])
    records = list(reader)
    assert reader.torn == []
    found = sorted((r.backend, r.dtype, r.params["fault"], r.outcome.value) for r in records)
    assert found == sorted(
        (backend, dtype, fault, "WRONG" if (backend, fault) == ("faulty", "zeros") else "PASSED")
        for backend in ("torch", "faulty")
        for dtype in ("fp32", "int32")
        for fault in ("right", "zeros")
    )


def test_the_worst_job_is_the_exit_status_of_the_sweep(swept):
    done, _ = swept
    assert done.returncode == 1, done.stdout + done.stderr
