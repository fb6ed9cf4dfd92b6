"""Which walls can be had here, and the proof that they stand: nothing runs behind walls that were not probed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tilebench_core.errors import RequestError
from tilebench_core.llm.walls.spec import Walls

__all__ = ["choose_walls", "probe"]

_MODES = ("bubblewrap", "namespaces")


def _home() -> Path:
    """Where the probe's secret is kept: the home folder, or the working directory of a user without one."""
    return Path.home() if os.access(Path.home(), os.W_OK) else Path.cwd()


def probe(walls: Walls, timeout_s: float = 60.0) -> str | None:
    """Return None if every wall stands, else what does not. Runs a process inside that tries to get out."""
    folder = Path(__file__).parent
    with (
        tempfile.TemporaryDirectory(dir=_home(), prefix=".tilebench-probe-") as home,
        tempfile.TemporaryDirectory() as root,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        secret = Path(home) / "secret"
        secret.write_text("a secret", encoding="utf-8")
        inner = [
            sys.executable,
            "-I",
            "-S",
            str(folder / "inside.py"),
            str(secret),
            str(listener.getsockname()[1]),
            str(os.getpid()),
        ]
        environment = walls.environment({})
        planted = {**os.environ, "TILEBENCH_SECRET_PROBE": "a secret"}
        try:
            done = subprocess.run(
                walls.command(inner, Path(root), environment),
                capture_output=True,
                text=True,
                timeout=timeout_s,
                env=planted,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{type(error).__name__}: {error}"
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return f"exit status {done.returncode}: {last}"
    found = json.loads(done.stdout)
    escaped = [f"{name} ({row['what']})" for name, row in found.items() if row["escaped"] and name != "scratch"]
    if escaped:
        return f"no wall around {', '.join(escaped)}"
    return (
        None if found["scratch"]["escaped"] else f"the scratch folder cannot be written to: {found['scratch']['what']}"
    )


def choose_walls(walls: Walls) -> Walls:
    """The first mode of `isolation.mode` that proves itself here. Raises RequestError where none does.

    Only `isolation.insist=true` gives walls of mode "none" in that case.
    """
    wanted = walls.isolation.mode
    if wanted == "none":
        return replace(walls, mode="none")
    reasons = []
    for mode in _MODES if wanted == "auto" else (wanted,):
        if mode == "bubblewrap" and shutil.which("bwrap") is None:
            reasons.append("bubblewrap: bwrap is not installed (apt-get install bubblewrap)")
            continue
        reason = probe(replace(walls, mode=mode))
        if reason is None:
            return replace(walls, mode=mode)
        reasons.append(f"{mode}: {reason}")
    if walls.isolation.insist:
        return replace(walls, mode="none")
    raise RequestError(
        f"candidates are untrusted code, and no walls can be put around them here: {'; '.join(reasons)}. Mend that, or run them "
        "with all of your rights by isolation.insist=true"
    )
