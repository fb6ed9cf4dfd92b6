"""Distributions for subprocesses without pip: their source on the path, and the metadata that an installer would write.

`pip install` of the same folders is tried once, in test_cli.py; everywhere else this stands for it, in a millisecond and
without leaving anything in the environment that a person works in.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest depends on it there

__all__ = ["EXAMPLE", "FAULTY", "announce", "environment", "tilebench"]

TESTS = Path(__file__).parent
EXAMPLE = TESTS / "example_dsl"
FAULTY = TESTS / "faulty"


def announce(project: Path, site: Path) -> None:
    """Write into `site` the `.dist-info` that installing `project` would leave: name, version and entry points."""
    described = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = site / f"{described['name'].replace('-', '_')}-{described['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {described['name']}\nVersion: {described['version']}\n", encoding="utf-8"
    )
    lines = []
    for group, names in described.get("entry-points", {}).items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in names.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def environment(site: Path, *projects: Path) -> dict[str, str]:
    """The environment of a subprocess in which `projects` are installed."""
    paths = [str(site)]
    for project in projects:
        announce(project, site)
        paths.append(str(project / "src"))
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TILEBENCH_COMMIT": "test",
        "COLUMNS": "200",
    }


def tilebench(
    arguments: Sequence[str], env: dict[str, str], cwd: Path, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tilebench_core.cli", *arguments],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
