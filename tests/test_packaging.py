"""What an installed copy has, as against the folder that a checkout runs from."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_distribution_brings_every_package():
    tomllib = pytest.importorskip("tomllib")
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    there = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "tilebench_core").rglob("__init__.py")}
    assert set(setup["packages"]) == there | set(setup["package-dir"])
