"""In which phase a kernel is called: compiled once, verified by two runs, then timed."""

from __future__ import annotations

__all__ = ["begin", "called"]

_PHASES = ("compile", "run", "run")
_calls = 0


def begin() -> None:
    """A kernel is about to be compiled: its next call is the first."""
    global _calls
    _calls = 0


def called() -> str:
    """Count a call and return its phase: compile, run or time."""
    global _calls
    phase = _PHASES[_calls] if _calls < len(_PHASES) else "time"
    _calls += 1
    return phase
