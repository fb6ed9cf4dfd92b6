"""The parent's handle on a worker: started in a process group of its own, killed with everything it started."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Worker", "WorkerDied"]


class WorkerDied(Exception):
    """The worker's process ended; the message says how."""


class Worker:
    """One worker process. Everything a DSL prints goes to `log`.

    `wrap` turns the worker's command line into the one that is run, for instance behind walls; with `bare`, `environment` is
    all of its environment.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        environment: Mapping[str, str],
        log: Path,
        *,
        wrap: Callable[[list[str]], list[str]] = list,
        bare: bool = False,
    ) -> None:
        request_read, request_write = os.pipe()
        answer_read, answer_write = os.pipe()
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                wrap([sys.executable, "-m", "tilebench_core.worker.main", str(request_read), str(answer_write)]),
                pass_fds=(request_read, answer_write),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environment) if bare else {**os.environ, **environment},
                start_new_session=True,
            )
        os.close(request_read)
        os.close(answer_write)
        self._requests = os.fdopen(request_write, "w")
        self._answers = answer_read
        self._buffer = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(answer_read, selectors.EVENT_READ)
        self.send(settings)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message; a worker that is gone shows when its answer is awaited."""
        try:
            self._requests.write(json.dumps(message, separators=(",", ":")) + "\n")
            self._requests.flush()
        except BrokenPipeError:
            pass

    def next_event(self, deadline: float) -> dict[str, Any]:
        """Wait for the next event. Raises TimeoutError at `deadline` (time.monotonic), WorkerDied if the process ended."""
        while b"\n" not in self._buffer:
            if not self._selector.select(max(0.0, deadline - time.monotonic())):
                if time.monotonic() >= deadline:
                    raise TimeoutError
                continue
            data = os.read(self._answers, 1 << 20)
            if not data:
                raise WorkerDied(self._how_it_ended())
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        return event

    def _how_it_ended(self) -> str:
        try:
            status = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return "closed its pipe and did not end"
        if status < 0:
            number = -status
            name = signal.Signals(number).name if number in signal.valid_signals() else str(number)
            killed = " (the kernel's out-of-memory killer, perhaps)" if name == "SIGKILL" else ""
            return f"died by {name}{killed}"
        return f"exited with status {status}"

    def stop(self) -> None:
        """Ask the worker to end, and kill it with its process group if it does not within a few seconds."""
        try:
            self._requests.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            pass
        self.kill()

    def kill(self) -> None:
        """Kill the worker and everything that it started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._selector.close()
        os.close(self._answers)
        try:
            self._requests.close()
        except BrokenPipeError:
            pass
