"""One line for each of TileLang's many-line errors."""

from __future__ import annotations

__all__ = ["one_line"]

_NVCC = "\nCompilation error:\n"


def one_line(error: BaseException) -> str:
    """Return the line of `error` that names its cause."""
    text = str(error)
    if _NVCC in text:  # TileLang puts the whole CUDA source before nvcc's messages and the command after them
        messages = text.rpartition(_NVCC)[2].splitlines()
        found = [line.strip() for line in messages if "error" in line.lower() or "fatal" in line.lower()]
        return f"nvcc: {(found or [line for line in messages if line.strip()] or ['no message'])[0]}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    checks = [line for line in lines if "Check failed" in line or "rror: " in line]
    return f"{type(error).__name__}: {(checks or lines or ['no message'])[-1]}"
