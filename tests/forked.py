"""`python forked.py ARGUMENTS` is `tilebench ARGUMENTS` with workers that are forked instead of started.

A worker spends seconds in importing PyTorch. Forked from a process that has imported it already, the same worker serves
after milliseconds: in its own session and process group, with its own pipes, and as mortal as any other.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from typing import Any

__all__ = ["ForkedProcess", "fork_workers"]


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


if __name__ == "__main__":
    from tilebench_core.cli import main

    fork_workers()
    sys.exit(main(sys.argv[1:]))
