"""Process 1 inside the walls: starts the command, counts processes and memory, and ends everything when a limit is passed.

A script of its own, run as `python -I -S watch.py LIMITS COMMAND…`; it imports nothing of TileBench. When process 1 ends,
the kernel kills whatever is left in its namespace, so nothing that a candidate starts survives it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from typing import Any

PROCESSES, MEMORY = 71, 72
INTERVAL_S = 0.02


def held_bytes(pid: str) -> int:
    """Anonymous and shared memory of a process; files that it maps are not its own."""
    try:
        with open(f"/proc/{pid}/status") as status:
            rows = dict(line.split(":", 1) for line in status if line.startswith(("RssAnon", "RssShmem")))
    except OSError:
        return 0  # it has ended
    return sum(int(value.split()[0]) * 1024 for value in rows.values())


def start(command: list[str], limits: dict[str, Any]) -> int:
    """Start the command as a child with ordinary priority and hard limits."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()  # a signal to its group must not reach process 1, which could not be replaced
        if os.sched_getscheduler(0) != os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # The kernel counts threads too, and none of root's: this is the backstop, the count below is the limit.
        tasks = max(4096, 32 * limits["processes"])
        resource.setrlimit(resource.RLIMIT_NPROC, (tasks, tasks))
        if limits["data_bytes"]:
            resource.setrlimit(resource.RLIMIT_DATA, (limits["data_bytes"], limits["data_bytes"]))
        os.execv(command[0], command)
    finally:
        os._exit(127)


def main() -> None:
    """Watch until the command has ended or a limit is passed."""
    limits, command = json.loads(sys.argv[1]), sys.argv[2:]
    child = start(command, limits)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os._exit(143))
    turns = 0
    while True:
        while True:  # reap what was orphaned as well
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                os._exit(0)
            if pid == 0:
                break
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                if code < 0:  # end in the same way, so that the parent learns which signal it was
                    sys.stderr.flush()
                    os._exit(128 - code)
                os._exit(code)
        pids = [name for name in os.listdir("/proc") if name.isdigit()]
        if len(pids) - 1 > limits["processes"]:
            print(f"walls: more than {limits['processes']} processes", file=sys.stderr, flush=True)
            os._exit(PROCESSES)
        turns += 1
        if turns % 3 == 0:
            held = sum(held_bytes(pid) for pid in pids)
            if held > limits["memory_bytes"]:
                print(
                    f"walls: {held / 2**30:.1f} GiB of memory, {limits['memory_bytes'] / 2**30:.1f} allowed",
                    file=sys.stderr,
                    flush=True,
                )
                os._exit(MEMORY)
        time.sleep(INTERVAL_S)


if __name__ == "__main__":
    main()
