"""How far a winner is shared: which cases are searched, and which reuse the winner of a case of about their size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["is_near", "reach", "searched"]

_Item = TypeVar("_Item")


def reach(share: str, dtype: str) -> str:
    """What cases of a kernel have in common that share winners as `share`, "dtype" or "operator", says."""
    return "" if share == "operator" else dtype


def is_near(one_bytes: float, other_bytes: float, within: float) -> bool:
    """True if the compulsory bytes of two cases differ by a factor of at most `within`."""
    return one_bytes <= other_bytes * within and other_bytes <= one_bytes * within


def searched(cases: Iterable[_Item], bytes_of: Callable[[_Item], float], within: float) -> list[_Item]:
    """The cases that are searched: from the largest down, each that is near none of those before it.

    From the largest, because a configuration that was found there hardly fails on a smaller case, and its time weighs most.
    """
    chosen: list[_Item] = []
    for case in sorted(cases, key=bytes_of, reverse=True):
        if not any(is_near(bytes_of(case), bytes_of(other), within) for other in chosen):
            chosen.append(case)
    return chosen
