"""The fault suite on the CPU: each way to misbehave ends in its outcome, and the kernels beside it are still measured."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from distributions import FAULTY, environment, tilebench
from forked import run_all

from tilebench_core.records import Record, RecordReader

LIMIT_S = 3  # until a step counts as hung: far more than any honest kernel here takes

# What a kernel does -> how its trial ends, and what the record says.
JUDGED = {
    "right": ("PASSED", ""),
    "slow": ("PASSED", ""),
    "noisy": ("PASSED", ""),
    "last": ("WRONG", r"^first run: output\[999\] is 0, expected .*; allowed Tolerance.*; 0.10% of the elements fail$"),
    "lower_precision": ("WRONG", r"first run: output\[\d+\] is .* of the elements fail"),
    "zeros": ("WRONG", r"is 0, expected .*; (100|99\.\d+)\.?\d*% of the elements fail"),
    "dtype": ("WRONG", r"first run: output has dtype float64, expected fp32"),
    "shape": ("WRONG", r"first run: output has shape \[999\], expected \[1000\]"),
    "rank": ("WRONG", r"first run: output has shape \[1, 1000\], expected \[1000\]"),
    "count": ("WRONG", r"first run: returned 2 outputs, expected 1"),
    "none": ("WRONG", r"first run: output is a NoneType, expected a tensor"),
    "strides": ("WRONG", r"first run: output has strides \[2\], expected a contiguous tensor"),
    "aliasing": ("WRONG", r"output shares its memory with input 0, expected its own"),
    "aliasing_a_view": ("WRONG", r"output shares its memory with input 0, expected its own"),
    "mutating": ("WRONG", r"input 0 was written to; inputs are read-only"),
    "mutating_and_restoring_one": ("WRONG", r"input 0 was written to; inputs are read-only"),
    "cached_by_object": (
        "WRONG",
        r"the second run returned the result of the first, although the inputs hold new values",
    ),
    "cached_by_pointer": ("WRONG", r"the second run returned the result of the first"),
    "cached_by_value": ("WRONG", r"the second run returned the result of the first"),
    "stale": ("WRONG", r"the second run returned the result of the first"),
    "nan": ("WRONG", r"output\[500\] is nan, expected .*; 0.10% of the elements are finite in one only"),
    "infinite": ("WRONG", r"output\[3\] is inf, expected .*; 0.10% of the elements are finite in one only"),
    "tail": ("WRONG", r"of the elements fail|finite in one only"),
    "reused": ("WRONG", r"the second run returned memory that the first had returned and that is still in use"),
    "lazy_when_timed": ("WRONG", r"^values of the timed launches: output\[\d+\] is .*, expected "),
    "uncompilable": ("COMPILE_ERROR", r"^line 3: tile of 3 elements is no power of two$"),
    "raise@compile": ("LAUNCH_ERROR", r"^RuntimeError: a launch that cannot be$"),
    "raise@run": ("LAUNCH_ERROR", r"^RuntimeError: a launch that cannot be$"),
    "raise@time": ("LAUNCH_ERROR", r"^RuntimeError: a launch that cannot be$"),
    "memory@compile": ("OUT_OF_MEMORY", r"can't allocate memory"),
    "memory@run": ("OUT_OF_MEMORY", r"can't allocate memory"),
    "objects@compile": ("OUT_OF_MEMORY", r"MemoryError"),
    "objects@run": ("OUT_OF_MEMORY", r"MemoryError"),
    "unsupported": ("UNSUPPORTED", r"^n has to be even$"),
}
MORTAL = {
    "hang": ("TIMEOUT", r"no end of '{phase}' in time"),
    "hang_in_c": ("TIMEOUT", r"no end of '{phase}' in time"),
    "exit": ("CRASHED", r"the worker exited with status 3 in '{phase}'"),
    "sys_exit": ("CRASHED", r"the worker exited with status 0 in '{phase}'"),
    "interrupt": ("CRASHED", r"the worker died by SIGINT in '{phase}'"),
    "killed": ("CRASHED", r"the worker died by SIGKILL \(the kernel's out-of-memory killer, perhaps\) in '{phase}'"),
    "segfault": ("CRASHED", r"the worker died by SIGSEGV in '{phase}'"),
}
PHASES = ("compile", "run", "time")
LETHAL = {
    f"{name}@{phase}": (outcome, message.format(phase=phase))
    for name, (outcome, message) in MORTAL.items()
    for phase in PHASES
    if not (name == "hang_in_c" and phase != "run")
}
INTEGERS = {
    "right": ("PASSED", ""),
    "last": ("WRONG", r"output\[999\] is 0, expected -?\d+; 0.10% of the elements differ"),
    "zeros": ("WRONG", r"of the elements differ"),
    "tail": ("WRONG", r"of the elements differ"),
    "mutating": ("WRONG", r"input 0 was written to"),
    "stale": ("WRONG", r"the second run returned the result of the first"),
}


def command(folder: Path, faults, dtype: str, *more: str) -> list[str]:
    quoted = ",".join(f"'{fault}'" for fault in faults)
    limits = [f"limits.{key}={LIMIT_S}" for key in ("compile_s", "run_s", "time_s")]
    return [
        "run", "operator=faulty_affine", "backend=[faulty,torch]", f"dtype={dtype}", "campaign=faults", "device=cpu",
        f"operators.faulty_affine.case_grid.fault=[{quoted}]", "tracking=none", "figures=false", "timing=quick",
        "limits.memory_gb=32", f"results_dir={folder}", *limits, *more,
    ]  # fmt: skip


def ends(folder: Path, backend: str) -> dict[str, Record]:
    records = list(RecordReader(folder / "faults" / "records.jsonl"))
    assert len({record.trial_id for record in records}) == len(records), "a trial has two records"
    return {record.params["fault"]: record for record in records if record.backend == backend}


def check(folder: Path, expected) -> None:
    found = ends(folder, "faulty")
    assert list(found) == list(expected)
    wrong = {
        fault: (found[fault].outcome.value, found[fault].reason)
        for fault, (outcome, message) in expected.items()
        if found[fault].outcome.value != outcome or not re.search(message, found[fault].reason or "")
    }
    assert wrong == {}


def check_neighbours(folder: Path, expected) -> None:
    found = ends(folder, "torch")
    assert list(found) == list(expected)
    not_measured = {
        fault: (record.outcome.value, record.reason)
        for fault, record in found.items()
        if record.median_us is None or record.outcome.value != "PASSED"
    }
    assert not_measured == {}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faulty")
    return folder, environment(folder / "site", FAULTY)


@pytest.fixture(scope="module")
def judged(faulty):
    """One real run over everything that can be judged in a living worker, and three deaths."""
    folder, env = faulty
    faults = {**JUDGED, **{name: LETHAL[name] for name in ("exit@run", "hang_in_c@run", "killed@time")}}
    done = tilebench(command(folder / "judged", faults, "fp32"), env, folder)
    return done, folder / "judged", faults


@pytest.fixture(scope="module")
def forked(faulty):
    """Every way to die or hang in every phase and some more runs, with forked workers: so many deaths must be cheap."""
    folder, env = faulty
    again = command(folder / "again", ["right", "last"], "fp32")
    commands = {
        "lethal": command(folder / "lethal", LETHAL, "fp32"),
        "integers": command(folder / "integers", INTEGERS, "int32"),
        "reference": command(folder / "reference", ["reference"], "fp32"),
        "first": again,
        "second": again,
        "failed": [*again, "rerun=failed"],
    }
    return dict(zip(commands, run_all(list(commands.values()), env, folder), strict=True))


def test_each_fault_ends_in_its_outcome_with_its_message(judged):
    _, folder, faults = judged
    check(folder, faults)


def test_the_kernels_beside_a_fault_are_still_measured(judged):
    _, folder, faults = judged
    check_neighbours(folder, faults)


def test_faults_are_failures_of_the_run_and_said_so(judged):
    done, _, _ = judged
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    assert "WRONG: faulty_affine fp32 n=1000 fault=last on faulty (default): first run" in done.stdout
    assert "worker lost: the worker exited with status 3 in 'run'; a fresh one goes on" in done.stdout
    assert "Not passed" in done.stdout


def test_numbers_stand_only_beside_what_passed(judged):
    _, folder, _ = judged
    for record in ends(folder, "faulty").values():
        assert (record.median_us is not None) == record.outcome.may_have_numbers
        assert record.outcome.may_have_numbers or record.samples_us is None


def test_a_slow_kernel_is_seen_to_be_slow(judged):
    _, folder, _ = judged
    found = ends(folder, "faulty")
    assert found["slow"].median_us > 5000 > found["right"].median_us


def test_the_error_statistics_of_a_wrong_kernel_are_kept(judged):
    _, folder, _ = judged
    last = ends(folder, "faulty")["last"]
    assert last.check == "values"
    assert last.failing_share == pytest.approx(0.001)
    assert last.worst == "output[999]"
    assert last.max_abs_err > 0


def test_what_a_kernel_prints_goes_to_the_log_and_nowhere_else(judged):
    done, folder, _ = judged
    assert '{"event": "done"}' in (folder / "faults" / "worker.log").read_text()
    assert "nonsense" not in done.stdout


def test_a_hang_is_killed_with_everything_it_started(judged):
    _, folder, _ = judged
    child = int(re.search(r"child (\d+)", (folder / "faults" / "worker.log").read_text()).group(1))
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_every_death_in_every_phase_is_charged_to_the_kernel_that_died(faulty, forked):
    assert forked["lethal"].returncode == 1, forked["lethal"].stderr
    check(faulty[0] / "lethal", LETHAL)


def test_the_kernels_beside_a_death_are_still_measured(faulty, forked):
    check_neighbours(faulty[0] / "lethal", LETHAL)


def test_faults_of_an_integer_operator_are_found_as_well(faulty, forked):
    check(faulty[0] / "integers", INTEGERS)
    check_neighbours(faulty[0] / "integers", INTEGERS)


def test_the_same_command_runs_nothing_again_and_failed_ones_on_request(faulty, forked):
    assert "4 trials planned on the CPU, 0 recorded already, 4 to run" in forked["first"].stdout
    assert "4 trials planned on the CPU, 4 recorded already, 0 to run" in forked["second"].stdout
    assert forked["second"].returncode == 1  # what had failed still has
    assert "3 recorded already, 1 to run" in forked["failed"].stdout
    lines = (faulty[0] / "again" / "faults" / "records.jsonl").read_text().splitlines()
    assert [json.loads(line)["params"]["fault"] for line in lines] == ["right", "right", "last", "last", "last"]


def test_a_reference_that_is_not_finite_accuses_nobody(faulty, forked):
    assert forked["reference"].returncode == 1
    for backend in ("faulty", "torch"):
        record = ends(faulty[0] / "reference", backend)["reference"]
        assert record.outcome.value == "INVALID_REFERENCE"
        assert "output 0 of the reference is not finite" in record.reason
