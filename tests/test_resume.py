"""A run that is killed loses at most the trial in flight, and the same command completes exactly what is missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from distributions import FAULTY, TESTS, environment

from tilebench_core.records import RecordReader


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resume")
    return folder, environment(folder / "site", FAULTY)


def test_killing_a_run_or_its_worker_at_random_moments_loses_and_doubles_nothing(place, request):
    folder, env = place
    kills = request.config.getoption("--kills")
    seed = time.time_ns() % 1_000_000
    done = subprocess.run(
        [sys.executable, str(TESTS / "killing.py"), str(folder / "random"), str(kills), str(seed)],
        env=env, cwd=folder, capture_output=True, text=True, timeout=30 + 5 * kills,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"seed {seed}: {found}")
    assert found["killed runs"] + found["killed workers"] == kills
    wrong = ("lost", "doubled", "missing", "hung runs", "workers left behind", "other ends",
             "charged beyond what was in flight", "unreadable environments")  # fmt: skip
    assert {name: found.get(name, 0) for name in wrong} == dict.fromkeys(wrong, 0), f"seed {seed}: {found}"
    assert found["torn lines"] <= found["killed runs"]


def run_command(folder: Path) -> list[str]:
    values = ",".join(str(100 + number) for number in range(40))
    return [
        sys.executable, "-m", "tilebench_core.cli", "run", "operator=faulty_affine", "backend=[faulty,torch]",
        "dtype=fp32", f"operators.faulty_affine.case_grid.n=[{values}]", "timing.repeat=10", "device=cpu",
        "operators.faulty_affine.case_grid.fault=[slow]", "tracking=none", "figures=false", "campaign=real",
        f"results_dir={folder}",
    ]  # fmt: skip


def lines_of(folder: Path) -> int:
    path = folder / "real" / "records.jsonl"
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def test_a_real_run_that_is_killed_goes_on_where_it_was(place):
    folder, env = place
    command = run_command(folder)
    with (folder / "killed.txt").open("w") as output:
        killed = subprocess.Popen(command, env=env, cwd=folder, stdout=output, stderr=output)
        deadline = time.monotonic() + 120
        while lines_of(folder) < 10 and time.monotonic() < deadline:
            time.sleep(0.01)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    kept = lines_of(folder)
    assert 10 <= kept < 80
    (folder / "real" / "records.jsonl").open("ab").write(b'{"trial_id": "half a li')  # and its last line is torn
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert f"80 trials planned on the CPU, {kept} recorded already, {80 - kept} to run" in done.stdout
    assert f"records.jsonl:{kept + 1}: set aside, no record: JSONDecodeError" in done.stdout
    reader = RecordReader(folder / "real" / "records.jsonl")
    records = list(reader)
    assert [number for number, _ in reader.torn] == [kept + 1]
    assert len(records) == len({record.trial_id for record in records}) == 80
    assert {record.outcome.value for record in records} == {"PASSED"}


def test_a_worker_that_hangs_dies_with_the_run_that_is_killed(place):
    folder, env = place
    command = [
        part.replace("fault=[slow]", "fault=['hang@run']").replace("=real", "=orphan") for part in run_command(folder)
    ]
    log = folder / "orphan.txt"
    with log.open("w") as output:
        killed = subprocess.Popen(command, env=env, cwd=folder, stdout=output, stderr=output)
        children = Path(f"/proc/{killed.pid}/task/{killed.pid}/children")
        deadline, workers = time.monotonic() + 60, []
        while not workers and time.monotonic() < deadline:
            workers = [int(pid) for pid in children.read_text().split() if b"worker" in _command_of(int(pid))]
            time.sleep(0.01)
        time.sleep(0.5)  # importing, or hanging already: it must die in either
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    assert workers, log.read_text()
    deadline = time.monotonic() + 10
    while _exists(workers[0]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _exists(workers[0])


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
