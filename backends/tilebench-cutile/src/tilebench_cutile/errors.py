"""cuTile's exceptions in TileBench's terms."""

from __future__ import annotations

import linecache
import os
from typing import Any

from tilebench_core import CompileError, DeviceOutOfMemory, LaunchError
from tilebench_core.errors import NotTunable

__all__ = ["translated_errors"]


class translated_errors:
    """A context that turns cuTile's and PyTorch's exceptions into ours, each with one line that says what happened."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or not isinstance(error, Exception) or isinstance(error, NotTunable):
            return
        import torch
        from cuda.tile import TileError

        if isinstance(error, torch.OutOfMemoryError):
            raise DeviceOutOfMemory(str(error).splitlines()[0]) from error
        if isinstance(error, TileError):
            raise CompileError(_summary(error)) from error
        raise LaunchError(f"{type(error).__name__}: {error}") from error


def _summary(error: Any) -> str:
    """The message of a TileError and the kernel's source line. (Its own `str` fails where a location is incomplete.)"""
    lines = [line.strip() for line in error.message.splitlines()]
    told = [line for line in lines if line and not line.startswith(("Return code", "Unknown location"))]
    return f"{type(error).__name__}: {' '.join(told or lines)[:600]}{_where(error.loc)}"


def _where(location: Any) -> str:
    if not location.filename or not location.line:
        return ""
    source = linecache.getline(location.filename, location.line).strip()
    return f" ({os.path.basename(location.filename)}:{location.line}{': ' + source if source else ''})"
