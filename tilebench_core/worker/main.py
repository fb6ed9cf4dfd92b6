"""The worker's entry point: `python -m tilebench_core.worker.main IN OUT`, with the numbers of two inherited pipes.

It reads the session's settings and then tasks, one JSON line each, and answers with events. Whatever a DSL prints goes
to stdout and stderr, which the parent has pointed at the campaign's log.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys

__all__ = ["EXIT_DEVICE_LOST", "main"]

EXIT_DEVICE_LOST = 70
"""The worker ends itself with this status after an error that the device does not survive."""


_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


def _die_with_the_parent() -> None:
    """Ask Linux to kill this process when its parent dies, so that a kernel that hangs does not keep the device."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    """Serve tasks until the parent closes the pipe."""
    _die_with_the_parent()
    # Only what is needed to report a failed start is imported up front.
    from tilebench_core.worker.messages import Emitter, task_from_json

    with os.fdopen(int(sys.argv[1]), "r") as requests, os.fdopen(int(sys.argv[2]), "w") as answers:
        emitter = Emitter(answers)
        settings = json.loads(requests.readline())
        memory_gb = settings["limits"]["memory_gb"]
        if memory_gb:
            limit = int(memory_gb * 2**30)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        emitter.step(None, "start", settings["limits"]["prepare_s"])
        from tilebench_core.errors import TilebenchError
        from tilebench_core.worker.session import open_session

        try:
            session = open_session(settings)
        except TilebenchError as error:
            emitter.send("failed", reason=str(error))
            return 1
        from tilebench_core.worker.case import DeviceLost, run_case
        from tilebench_core.worker.noise import measure_noise

        emitter.send("ready", l2_bytes=session.device.l2_bytes)
        try:
            for line in requests:
                message = json.loads(line)
                work = measure_noise if message.get("noise") else run_case
                try:
                    work(session, task_from_json(message), emitter)
                except DeviceLost as lost:
                    emitter.send("lost", reason=str(lost))
                    answers.flush()
                    os._exit(EXIT_DEVICE_LOST)  # tearing CUDA down after a sticky error can hang
                emitter.send("done")
        finally:
            session.clock.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
