"""Where TileLang finds the compilers that it starts: the same places in the same order, without importing it."""

from __future__ import annotations

import os
import shutil
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

__all__ = ["cplus_compiler", "nvcc"]


def nvcc() -> str | None:
    """Return nvcc's path: in $CUDA_HOME or $CUDA_PATH, on PATH, in the package nvidia-cuda-nvcc, in /usr/local/cuda."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home is not None:
        return _existing(Path(home) / "bin" / "nvcc")
    on_path = shutil.which("nvcc")
    if on_path is not None:
        return on_path
    try:
        packaged = [str(file.locate()) for file in files("nvidia-cuda-nvcc") or [] if file.name == "nvcc"]
    except PackageNotFoundError:
        packaged = []
    return packaged[0] if packaged else _existing(Path("/usr/local/cuda/bin/nvcc"))


def cplus_compiler() -> str | None:
    """Return the path of the C++ compiler that links a kernel's host code."""
    named = os.environ.get("CXX") or os.environ.get("CC")
    candidates = [named] if named else ["g++", "clang++", "c++"]
    return next((path for path in map(shutil.which, candidates) if path is not None), None)


def _existing(path: Path) -> str | None:
    return str(path) if path.exists() else None
