"""`python killing.py RESULTS KILLS SEED` kills runs at random moments, resumes them, and prints what was lost.

A campaign of CASES × 2 trials is run, and either the run or its worker is killed with SIGKILL after a random time, again
and again, until the campaign is complete; then the next one begins, until there were KILLS kills. Runs and workers are
forked from this process, which has imported everything, so that a run takes a fraction of a second and a kill is as
likely to meet its start, its end, or the moment in which a record is written, as anything else.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from forked import fork_workers

CASES = 60


def composed_for(results: Path) -> dict:
    from tilebench_core.compose import compose
    from tilebench_core.registry import installed

    values = ",".join(str(100 + number) for number in range(CASES))
    return compose(installed(), [
        "operator=faulty_affine", "backend=[faulty,torch]", "dtype=fp32", "timing=quick", "timing.warmup=0",
        "timing.repeat=3", "tracking=none", "figures=false", "device=cpu", f"results_dir={results}",
        f"operators.faulty_affine.case_grid.n=[{values}]", "operators.faulty_affine.case_grid.fault=[right]",
    ])  # fmt: skip


def start(composed: dict, log: Path) -> int:
    """Fork a run, and return its process id."""
    from tilebench_core.jobs import execute, prepare
    from tilebench_core.registry import installed
    from tilebench_core.run import Progress

    class Announcing(Progress):
        def recorded(self, record) -> None:
            os.write(1, f"recorded {record.trial_id}\n".encode())

    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        job = prepare(installed(), composed)
        execute(installed(), job, Announcing(), print)
        status = 0
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(status)


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []  # it has ended


def wait(pid: int, seconds: float) -> int | None:
    """Wait for a process; return its exit status, or None if it still runs after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    return None


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def records_of(folder: Path) -> tuple[list[dict], int]:
    """The records in the file, and how many lines are torn."""
    records, torn = [], 0
    path = folder / "records.jsonl"
    for line in path.read_bytes().split(b"\n") if path.is_file() else []:
        try:
            records += [json.loads(line)] if line.strip() else []
        except ValueError:
            torn += 1
    return records, torn


def campaign(composed: dict, folder: Path, dice: random.Random, kills: int, usual_s: float, found: Counter) -> None:
    """Run one campaign to its end through up to `kills` kills, and count what went wrong into `found`."""
    planned, log = CASES * 2, folder.parent / f"{folder.name}.log"
    log.touch()  # here, because a run may be killed before its first line
    before: list[str] = []
    left, in_flight = kills, 0
    for _ in range(1000):
        pid = start({**composed, "campaign": folder.name}, log)
        workers: list[int] = []
        status = None
        while left and status is None:
            victim = dice.choice(["run", "worker"])
            while victim == "worker" and not children(pid) and (status := wait(pid, 0.002)) is None:
                pass
            status = wait(pid, dice.uniform(0, 0.4 * usual_s)) if status is None else status
            if status is not None:
                break
            workers = children(pid)
            if workers and victim == "worker":
                os.kill(workers[0], signal.SIGKILL)
                in_flight += 2  # a worker that dies while the inputs of a case are drawn costs both its trials
                found["killed workers"] += 1
                left -= 1
            else:
                os.kill(pid, signal.SIGKILL)
                found["killed runs"] += 1
                left -= 1
                status = wait(pid, 60)
        if status is None:
            status = wait(pid, 60)
        if status is None:
            found["hung runs"] += 1
            os.kill(pid, signal.SIGKILL)
            wait(pid, 60)
        time.sleep(0.005 if workers else 0)
        records, torn = records_of(folder)
        ids = [record["trial_id"] for record in records]
        announced = re.findall(r"^recorded (\w+)$", log.read_text(), re.MULTILINE)
        found["lost"] += len((set(before) | set(announced)) - set(ids))
        found["doubled"] += len(ids) - len(set(ids))
        before = ids
        if status == 0:
            break
    deadline = time.monotonic() + 10
    while any(alive(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.01)
    found["workers left behind"] += sum(alive(worker) for worker in workers)
    found["missing"] += planned - len(set(before))
    found["torn lines"] += torn
    crashed = [record for record in records if record["outcome"] == "CRASHED"]
    found["charged"] += len(crashed)
    found["charged beyond what was in flight"] += max(0, len(crashed) - in_flight)
    found["other ends"] += sum(record["outcome"] not in ("PASSED", "CRASHED") for record in records)
    found["unreadable environments"] += not json.loads((folder / "environment.json").read_text())
    found["campaigns"] += 1


def main() -> None:
    results, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    results.mkdir(parents=True, exist_ok=True)
    dice, found = random.Random(seed), Counter()
    fork_workers()
    composed = composed_for(results)
    campaign(composed, results / "undisturbed1", dice, 0, 0.0, found)  # the first one fills caches
    begun = time.monotonic()
    campaign(composed, results / "undisturbed2", dice, 0, 0.0, found)
    usual_s = time.monotonic() - begun
    while (done := found["killed runs"] + found["killed workers"]) < kills:
        campaign(composed, results / f"campaign{found['campaigns']}", dice, min(10, kills - done), usual_s, found)
    print(json.dumps({**found, "seconds of an undisturbed run": usual_s}))


if __name__ == "__main__":
    main()
