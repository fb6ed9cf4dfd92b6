"""The fault suite on a GPU: Triton kernels that misbehave end in their outcomes, and those beside them are measured.

`pytest tests/gpu --fail-on-skip` on a machine with an NVIDIA GPU; elsewhere everything here is skipped.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from distributions import environment, tilebench

from tilebench_core.records import Record, RecordReader

PACK = Path(__file__).parent / "faulty_triton"

ENDS = {
    "right": ("PASSED", ""),
    "late": ("PASSED", ""),
    "host": ("PASSED", ""),
    "last": ("WRONG", r"first run: output\[99999\] is 0, expected"),
    "nan": ("WRONG", r"first run: output\[0\] is nan, expected .* finite in one only"),
    "tail": ("WRONG", r"of the elements fail"),
    "race": ("WRONG", r"of the elements fail"),
    "aliasing": ("WRONG", r"output shares its memory with input 0"),
    "mutating": ("WRONG", r"input 0 was written to"),
    "stale": ("WRONG", r"the second run returned the result of the first"),
    "cached_by_pointer": ("WRONG", r"the second run returned the result of the first"),
    "reused": ("WRONG", r"memory that the first had returned"),
    "side_stream": ("WRONG|NO_DEVICE_WORK", r"."),
    "memory": ("OUT_OF_MEMORY", r"out of memory|memory"),
    "too_large_a_tile": ("COMPILE_ERROR|LAUNCH_ERROR", r"."),
    "out_of_bounds": ("CRASHED", r"illegal memory access"),
    "out_of_bounds@run": ("CRASHED", r"illegal memory access"),
    "illegal_address": ("CRASHED", r"illegal memory access"),
    "illegal_address@run": ("CRASHED", r"illegal memory access"),
    "endless": ("TIMEOUT", r"no end of 'compile' in time"),
    "endless@run": ("TIMEOUT", r"no end of 'run' in time"),
}


pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("gpu")


@pytest.fixture(scope="module")
def finished(folder):
    env = environment(folder / "site", PACK)
    env["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    quoted = ",".join(f"'{fault}'" for fault in ENDS)
    done = tilebench(
        ["run", "operator=faulty_gpu", "backend=[triton,torch]", "device=cuda", "timing=quick", "tracking=none",
         "figures=false", "campaign=faults", f"results_dir={folder}", f"operators.faulty_gpu.case_grid.fault=[{quoted}]",
         "limits.compile_s=20", "limits.run_s=5", "limits.time_s=20", "precompile=false", "noise_floor=false"],
        env, folder, timeout=500,
    )  # fmt: skip
    records = list(RecordReader(folder / "faults" / "records.jsonl"))
    caught = sum(r.outcome.is_failure for r in records if r.backend == "triton")
    accused = sum(r.outcome.is_failure for r in records if r.backend == "torch")
    print(json.dumps({"faults": len(ENDS), "caught": caught, "falsely accused": accused}))
    return done, records


def by_fault(records: list[Record], backend: str) -> dict[str, Record]:
    return {record.params["fault"]: record for record in records if record.backend == backend}


def test_each_fault_ends_in_its_outcome_with_its_message(finished):
    done, records = finished
    assert done.returncode == 1, done.stderr
    found = by_fault(records, "triton")
    assert list(found) == list(ENDS)
    wrong = {
        fault: (found[fault].outcome.value, found[fault].reason)
        for fault, (outcome, message) in ENDS.items()
        if not re.fullmatch(outcome, found[fault].outcome.value) or not re.search(message, found[fault].reason or "")
    }
    assert wrong == {}


def test_the_kernels_beside_a_fault_are_still_measured(finished):
    _, records = finished
    found = by_fault(records, "torch")
    assert list(found) == list(ENDS)
    assert {fault: r.outcome.value for fault, r in found.items() if r.median_us is None} == {}


def test_what_cannot_be_captured_is_timed_without_a_graph_and_says_so(finished):
    _, records = finished
    host = by_fault(records, "triton")["host"]
    assert host.graph is False
    assert "not captured" in host.graph_reason


def test_memory_that_was_refused_is_there_again_for_the_next_case(finished):
    _, records = finished
    after = by_fault(records, "triton")["right"].peak_bytes
    assert after is not None
    assert after < 1 << 20


def test_no_process_is_left_on_the_gpu(finished, folder):
    command = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.split()
    assert [pid for pid in shown if _worker_in(folder, pid)] == []


def _worker_in(folder: Path, pid: str) -> bool:
    """True for a worker of the run that was started in `folder`; another campaign may be on the machine's other GPUs."""
    process = Path("/proc") / pid
    try:
        return (process / "cwd").resolve() == folder and b"tilebench_core.worker" in (process / "cmdline").read_bytes()
    except OSError:
        return False
