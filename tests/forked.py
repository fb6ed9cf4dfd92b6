"""Many runs of `tilebench` for the price of one: its workers are forked instead of started.

A worker spends seconds in importing PyTorch. Forked from a process that has imported it already, the same worker serves
after milliseconds: in its own session and process group, with its own pipes, and as mortal as any other.

`python forked.py` reads a JSON list of command lines from stdin, runs each in a forked process of its own, and prints a
JSON list of (exit status, stdout, stderr).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["ForkedProcess", "fork_workers", "run_all"]


class ForkedProcess:
    """What `tilebench_core.worker.process` needs of subprocess.Popen."""

    def __init__(self, command: list[str], *, pass_fds: tuple[int, ...], stdout: Any, env: dict[str, str], **_: Any):
        sys.stdout.flush()
        sys.stderr.flush()
        self._status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                self._become(stdout.fileno(), pass_fds, env)
                status = self._serve(command)
            finally:
                sys.stdout.flush()
                os._exit(status)

    @staticmethod
    def _become(output: int, keep: tuple[int, ...], env: dict[str, str]) -> None:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) not in keep:
                try:
                    os.close(int(name))
                except OSError:
                    pass  # the descriptor of the listing itself
        os.environ.update(env)

    @staticmethod
    def _serve(command: list[str]) -> int:
        from tilebench_core.worker.main import main

        sys.argv = ["worker", *command[-2:]]
        try:
            return main()
        except SystemExit as leaving:
            return leaving.code if isinstance(leaving.code, int) else 1
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
            return 1
        except BaseException:
            traceback.print_exc()
            return 1

    def wait(self, timeout: float | None = None) -> int:
        """See subprocess.Popen.wait."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._status is None:
            pid, status = os.waitpid(self.pid, 0 if deadline is None else os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
            elif deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
            elif not pid:
                time.sleep(0.002)
        return self._status


def fork_workers() -> None:
    """Import what a worker imports, and let workers be forked from here on."""
    import torch

    import tilebench_core.run
    import tilebench_core.verify.compare
    import tilebench_core.worker.case
    import tilebench_core.worker.describe
    import tilebench_core.worker.process as process
    import tilebench_core.worker.timed  # noqa: F401  (imported so that forked workers have it)
    from tilebench_core.registry import installed

    torch.set_num_threads(1)  # a pool of threads would not survive the fork
    installed()

    class Forking:
        Popen = ForkedProcess
        DEVNULL = subprocess.DEVNULL
        TimeoutExpired = subprocess.TimeoutExpired

    process.subprocess = Forking


def run_all(
    commands: Sequence[Sequence[str]], env: dict[str, str], cwd: Path
) -> list[subprocess.CompletedProcess[str]]:
    """Run command lines of `tilebench` one after the other, each in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps(commands),
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return [subprocess.CompletedProcess(c, *end) for c, end in zip(commands, json.loads(done.stdout), strict=True)]


def _run_one(command: list[str]) -> tuple[int, str, str]:
    from tilebench_core.cli import main

    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.dup2(output.fileno(), 1)
                os.dup2(errors.fileno(), 2)
                status = main(command)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        texts = []
        for stream in (output, errors):
            stream.seek(0)
            texts.append(stream.read().decode())
        return status, texts[0], texts[1]


if __name__ == "__main__":
    fork_workers()
    print(json.dumps([_run_one(command) for command in json.load(sys.stdin)]))
