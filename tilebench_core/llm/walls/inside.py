"""The probe's inner half: tries to get out in every way that a candidate might, and prints what happened as JSON.

`python -I -S inside.py SECRET_FILE PORT PARENT` with a file in the home folder, a port that listens outside, and a process.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def outcome(attempt: Callable[[], Any]) -> dict[str, Any]:
    """What became of one attempt."""
    try:
        return {"escaped": True, "what": str(attempt())[:200]}
    except (OSError, KeyError, ValueError) as error:
        return {"escaped": False, "what": f"{type(error).__name__}: {error}"[:200]}


def environment() -> list[str]:
    """Look for secrets in the environment."""
    found = [name for name in os.environ if "SECRET" in name or "KEY" in name or "TOKEN" in name]
    if found:
        return found
    raise KeyError("no variable looks like a secret")


def connect(port: int) -> str:
    """Reach a server outside."""
    with socket.create_connection(("127.0.0.1", port), timeout=2):
        return "connected"


def write(path: str) -> str:
    """Write a file."""
    with open(path, "w") as file:
        file.write("x")
    os.unlink(path)
    return path


def neighbours(parent: int) -> str:
    """See a process outside."""
    os.kill(parent, 0)
    with open(f"/proc/{parent}/cmdline", "rb") as file:
        if b"tilebench" in file.read() or b"python" in file.read():
            return f"process {parent} is visible"
    raise OSError("another process")


def main() -> None:
    """Try everything and print what happened."""
    secret, port, parent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    found = {
        "environment": outcome(environment),
        "home": outcome(Path(secret).read_text),
        "network": outcome(lambda: connect(port)),
        "disk": outcome(lambda: write(os.path.join(os.path.dirname(secret), "written"))),
        "system": outcome(lambda: write("/usr/written-by-a-candidate")),
        "root": outcome(lambda: write("/written-by-a-candidate")),
        "processes": outcome(lambda: neighbours(parent)),
        "privileges": outcome(lambda: os.setuid(0)),
        "scratch": outcome(lambda: write(os.path.join(os.getcwd(), "written"))),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
