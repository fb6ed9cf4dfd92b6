"""What a campaign ran on, captured once."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tilebench_core.device import Device
from tilebench_core.plugins import Plugin

__all__ = ["backend_versions", "capture_environment", "git_commit", "now"]

_PACKAGES = (
    "tilebench",
    "tilebench-operators",
    "torch",
    "numpy",
    "mlflow",
    "hydra-core",
    "cupti-python",
    "nvidia-ml-py",
)


def now() -> str:
    """The time as ISO 8601 in UTC, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def git_commit() -> str | None:
    """The commit of the checkout that this package runs from, with `+` if it has changes; TILEBENCH_COMMIT stands above.

    None where it was installed from a wheel.
    """
    if os.environ.get("TILEBENCH_COMMIT"):
        return os.environ["TILEBENCH_COMMIT"]
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, timeout=10)
        changes = subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None  # git is not installed, or does not answer: the commit is unknown, and null says so
    if commit.returncode != 0:
        return None
    return commit.stdout.strip() + ("+" if changes.stdout.strip() else "")


def backend_versions(backends: Iterable[Plugin]) -> dict[str, dict[str, str]]:
    """The versions that each backend reports, by backend."""
    return {plugin.name: dict(plugin.value().versions()) for plugin in backends}


def capture_environment(device: Device, backends: Iterable[Plugin]) -> dict[str, Any]:
    """Everything about this machine and installation that a reader of the records may ask for."""
    packages: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    return {
        "date": now(),
        "git_commit": git_commit(),
        "host": platform.node(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "cpu_count": os.cpu_count(),
        "device": {**asdict(device), "arch": device.arch},
        "packages": packages,
        "backends": backend_versions(backends),
    }
