"""The command line as a user meets it: processes, exit statuses, documents, skeletons that work, a third distribution."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from distributions import EXAMPLE, FAULTY, environment, tilebench
from forked import run_all

from tilebench_core.records import RecordReader

QUICK = ["tracking=none", "figures=false", "timing=quick", "device=cpu"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    return folder, environment(folder / "site", EXAMPLE, FAULTY)


@pytest.fixture(scope="module")
def listed(place):
    folder, env = place
    done = tilebench(["list", "--json"], env, folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_listing_is_one_json_document_of_three_lists(listed):
    assert list(listed) == ["backends", "operators", "broken"]
    for row in listed["backends"]:
        assert list(row) == ["name", "provider", "version", "status", "reason"]
        assert (row["reason"] is None) == (row["status"] in ("available", "interpreted"))
    for row in listed["operators"]:
        assert list(row) == ["name", "category", "origin", "provider", "dtypes", "cases", "backends"]
        assert row["cases"] > 0


def test_a_third_distribution_appears_beside_the_others_without_a_change_anywhere_else(listed):
    example = next(row for row in listed["backends"] if row["name"] == "example")
    assert (example["provider"], example["status"]) == ("tilebench-example 0.1.0", "available")
    softmax = next(row for row in listed["operators"] if row["name"] == "softmax")
    assert softmax["provider"].startswith("tilebench-operators")
    assert softmax["backends"]["example"] == "tilebench-example 0.1.0"
    assert [row["name"] for row in listed["operators"] if "example" in row["backends"]] == ["softmax"]


def test_broken_plugins_are_listed_with_distribution_entry_point_and_reason(listed):
    assert sorted(listed["broken"], key=lambda row: row["entry_point"]) == [
        {"distribution": "tilebench-faulty 0.1.0", "entry_point": "broken",
         "reason": "ImportError: cannot import name 'jit' from 'a_dsl_that_moved_it'"},
        {"distribution": "tilebench-faulty 0.1.0", "entry_point": "outdated",
         "reason": "written for plugin API 0, this TileBench has 1; install matching versions"},
    ]  # fmt: skip


def test_the_listing_shows_broken_plugins_to_people_as_well(place):
    folder, env = place
    done = tilebench(["list"], env, folder)
    assert "broken tilebench-faulty 0.1.0 (broken): ImportError: cannot import name 'jit'" in done.stdout
    assert done.stderr == ""


def test_a_broken_backend_is_refused_with_its_reason(place):
    folder, env = place
    done = tilebench(["run", "backend=broken", "operator=softmax"], env, folder)
    assert done.returncode == 2
    assert done.stderr == (
        "tilebench: backend 'broken' of tilebench-faulty 0.1.0 is broken: "
        "ImportError: cannot import name 'jit' from 'a_dsl_that_moved_it'\n"
    )


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["--help"], 0), (["help"], 0), (["--version"], 0), ([], 2), (["run", "--help"], 0), (["list", "--help"], 0),
     (["doctor", "--help"], 0), (["report", "--help"], 0), (["new", "--help"], 0)],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_help_is_there_for_every_command(arguments, status, capsys):
    from tilebench_core.cli import main

    try:
        found = main(arguments)
    except SystemExit as leaving:  # argparse leaves this way after printing its help
        found = leaving.code
    assert found == status
    assert "tilebench" in capsys.readouterr().out


def test_the_help_of_run_names_every_group_and_key(capsys):
    from tilebench_core.cli import main

    main(["run", "--help"])
    text = capsys.readouterr().out
    for word in ("operator", "backend", "dtype", "cases", "mode", "timing", "tune", "device", "tracking", "suite",
                 "experiment", "campaign", "results_dir", "rerun", "limits", "memory_gb", "recycle_after", "-m"):  # fmt: skip
        assert word in text


def test_doctor_tells_what_can_run_and_what_is_broken(place):
    folder, env = place
    done = tilebench(["doctor", "--json", "--device", "cpu"], env, folder)
    checks = {check["check"]: check for check in json.loads(done.stdout)}
    assert checks["backend torch"]["status"] == "ok"
    assert checks["backend example"]["status"] == "ok"
    assert checks["plugin"]["status"] == "fail"  # this environment holds the broken ones on purpose
    assert checks["plugin"]["mend"] == "pip install -U tilebench-faulty"
    assert done.returncode == 1


@pytest.fixture(scope="module")
def runs(place):
    """Some short runs, in one process that forks their workers."""
    folder, env = place
    softmax = ["run", "operator=softmax", "campaign=softmax", f"results_dir={folder}/results", *QUICK]
    commands = {
        "dry": ["run", "--dry-run", "operator=softmax", "backend=torch", f"results_dir={folder}/dry", *QUICK],
        "all": [*softmax, "backend=[torch,example,faulty]", "cases=[smoke,edge]"],
        "missing": [
            "run", "operator=vector_add", "backend=example", "cases=smoke", f"results_dir={folder}/missing", *QUICK,
        ],
        "failing": [
            "run", "operator=faulty_affine", "backend=faulty", "dtype=fp32", f"results_dir={folder}/failing", *QUICK,
            "operators.faulty_affine.case_grid.fault=[zeros]",
        ],
    }  # fmt: skip
    return dict(zip(commands, run_all(list(commands.values()), env, folder), strict=True))


def test_a_third_distributions_kernel_runs_beside_the_others(place, runs):
    assert runs["all"].returncode == 0, runs["all"].stdout + runs["all"].stderr
    records = list(RecordReader(place[0] / "results" / "softmax" / "records.jsonl"))
    example = [record for record in records if record.backend == "example"]
    assert {record.outcome.value for record in example} == {"PASSED"}
    assert {record.provider for record in example} == {"tilebench-example 0.1.0"}
    assert len({record.kernel for record in example} - {None}) == 1
    assert all((record.median_us is not None) == (record.case_kind != "edge") for record in example)
    assert all(record.launches == 1 and record.compile_s > 0 for record in example)
    assert {record.outcome.value for record in records if record.backend == "faulty"} == {"MISSING"}


def test_the_example_proves_itself_with_the_contracts_that_everybody_inherits(place):
    folder, env = place
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests")],
        env=env, cwd=folder, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_what_is_missing_or_unavailable_is_no_failure(runs):
    assert runs["missing"].returncode == 0
    assert "MISSING" in runs["missing"].stdout


def test_what_failed_is_status_1(runs):
    assert runs["failing"].returncode == 1
    assert "WRONG" in runs["failing"].stdout


def test_a_dry_run_plans_and_runs_nothing(place, runs):
    assert runs["dry"].returncode == 0
    assert "40 trials planned on the CPU, 0 recorded already, 40 to run" in runs["dry"].stdout
    assert list((place[0] / "dry").rglob("records.jsonl")) == []


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """What a newcomer does: a new backend, a new operator in a pack of its own, and a kernel for it."""
    folder = tmp_path_factory.mktemp("grown")
    env = environment(folder / "site0")

    def new(*arguments: str, env=env) -> None:
        done = tilebench(["new", *arguments], env, folder)
        assert done.returncode == 0, done.stderr
        assert all((folder / line).exists() for line in done.stdout.splitlines())

    new("backend", "mydsl")
    pack = folder / "tilebench-mydsl" / "src" / "tilebench_mydsl_kernels"
    new("operator", "fused_twice", "--into", str(pack))
    env = environment(folder / "site1", folder / "tilebench-mydsl")
    new("kernel", "fused_twice:mydsl", "--into", str(pack), env=env)
    return folder, env, pack


def test_a_new_backend_operator_and_kernel_work_together_from_the_start(grown):
    folder, env, pack = grown
    listed = json.loads(tilebench(["list", "--json"], env, folder).stdout)
    assert listed["broken"] == []
    operator = next(row for row in listed["operators"] if row["name"] == "fused_twice")
    assert operator["backends"] == {"mydsl": "tilebench-mydsl 0.1.0", "torch": "tilebench-mydsl 0.1.0"}
    command = ["run", "operator=fused_twice", "backend=[torch,mydsl]", "cases=[smoke,edge]", f"results_dir={folder}/r",
               "campaign=c", *QUICK]  # fmt: skip
    kernel = pack / "fused_twice" / "impl_mydsl.py"
    skeleton = kernel.read_text()
    first = tilebench(command, env, folder)
    assert first.returncode == 0, first.stderr
    kernel.write_text(
        skeleton.replace('raise NotImplementedError("write the kernel here; all of run is timed")', "return inputs[0] * 2")
        .replace('return "the kernel is not written yet"', "return None")
    )  # fmt: skip
    second = tilebench(command, env, folder)
    assert second.returncode == 0, second.stderr
    ends: dict[str, set] = {}
    for record in RecordReader(folder / "r" / "c" / "records.jsonl"):
        ends.setdefault(record.backend, set()).add((record.outcome.value, record.reason))
    assert ends["torch"] == {("PASSED", None)}
    assert ends["mydsl"] == {("UNSUPPORTED", "the kernel is not written yet"), ("PASSED", None)}


def test_the_tests_of_a_new_backend_pass(grown):
    folder, env, _ = grown
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder / "tilebench-mydsl" / "tests")],
        env=env, cwd=folder, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_nothing_is_overwritten(grown):
    folder, env, pack = grown
    done = tilebench(["new", "operator", "fused_twice", "--into", str(pack)], env, folder)
    assert done.returncode == 2
    assert "exists; nothing was written" in done.stderr


def test_the_example_and_the_faulty_distribution_can_be_installed_by_pip(tmp_path):
    """Offline, as everything else here: what pip needs is installed already."""
    projects = []
    for project in (EXAMPLE, FAULTY):
        shutil.copytree(
            project, tmp_path / project.name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__", "build")
        )
        projects.append(str(tmp_path / project.name))
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
         "--target", str(tmp_path / "site"), *projects],
        capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    listed = json.loads(tilebench(["list", "--json"], env, tmp_path).stdout)
    assert {"example", "faulty"} <= {row["name"] for row in listed["backends"]}
    assert "faulty_affine" in {row["name"] for row in listed["operators"]}
    assert (Path(tmp_path / "site") / "tilebench_faulty_pack" / "faulty_affine" / "config.yaml").is_file()
