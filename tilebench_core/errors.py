"""Every error that TileBench raises on purpose.

A message names what was wrong, what was expected and what to type. The command line prints it as one line.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "BackendError",
    "CompileError",
    "ConfigError",
    "DeviceOutOfMemory",
    "LaunchError",
    "NotTunable",
    "PluginError",
    "RequestError",
    "TilebenchError",
    "nearest",
]


class TilebenchError(Exception):
    """The root of all errors that TileBench raises on purpose."""


class RequestError(TilebenchError):
    """The request cannot be carried out as it was made; nothing has run. Exit status 2."""


class ConfigError(RequestError):
    """A configuration file or an override is malformed; the message names the file, and the line where it is known."""


class PluginError(TilebenchError):
    """A distribution announced a plugin that cannot be used."""


class BackendError(TilebenchError):
    """A backend failed on a kernel: the base of what `Backend.compile` and `Backend.launch` may raise."""


class CompileError(BackendError):
    """The DSL's compiler rejected the kernel."""


class LaunchError(BackendError):
    """The kernel compiled and could not be launched, for instance because it needs more shared memory than there is."""


class NotTunable(BackendError):
    """The DSL has no tuner of its own, or its tuner cannot be given this kernel as it is; the message says why."""


class DeviceOutOfMemory(BackendError):
    """The device has not enough memory for the inputs, the outputs or the kernel's workspace."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` with the member of `known` that resembles `word` most, or an empty string."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" Did you mean {found[0]!r}?" if found else ""
