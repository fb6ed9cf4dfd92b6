"""The store of winners: one file for all backends, found again by the next process.

The key is everything that can change which configuration wins: backend, kernel source, shapes, strides and dtypes of the
inputs, plain values, device, versions, and the search space.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

__all__ = ["Winner", "WinnerStore", "default_path", "describe_inputs", "winner_key"]


@dataclass(frozen=True, kw_only=True)
class Winner:
    """A configuration that won a search, and the search's figures."""

    key: str
    operator: str
    dtype: str
    params: Mapping[str, Any]
    backend: str
    device: str
    config: Mapping[str, Any]
    median_us: float
    default_us: float | None
    reason: str
    candidates: int
    failed: int
    seconds: float
    when: str
    kind: str = "shared"


def default_path() -> Path:
    """Where winners are kept: TILEBENCH_CACHE, or the user's cache folder."""
    base = (
        os.environ.get("TILEBENCH_CACHE")
        or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tilebench"
    )
    return Path(base) / "winners.jsonl"


def describe_inputs(inputs: Sequence[Any]) -> list[Any]:
    """Shapes, strides and dtypes of the tensors, and the plain values, of a kernel's inputs."""
    return [
        [list(value.shape), list(value.stride()), str(value.dtype)] if hasattr(value, "stride") else value
        for value in inputs
    ]


def winner_key(
    *,
    backend: str,
    kernel_source: str,
    inputs: Sequence[Any],
    device: str,
    versions: Mapping[str, str],
    space: Iterable[Mapping[str, Any]],
    kind: str,
) -> str:
    """The key under which a winner is kept."""
    identity = [backend, kernel_source, describe_inputs(inputs), device, dict(versions), [dict(c) for c in space], kind]
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


class WinnerStore:
    """Winners in one JSON-lines file; the last line of a key stands. Writers of several processes take turns."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()

    def all(self) -> list[Winner]:
        """Every winner, the latest per key."""
        if not self.path.is_file():
            return []
        found = {}
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                winner = Winner(**json.loads(line))
            except (ValueError, TypeError):
                continue  # torn, or written by another version: the search is simply made again
            found[winner.key] = winner
        return list(found.values())

    def get(self, key: str) -> Winner | None:
        """The winner kept under `key`, or None."""
        return next((winner for winner in self.all() if winner.key == key), None)

    def put(self, winner: Winner) -> None:
        """Keep a winner."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(str(self.path) + ".lock"), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(winner), allow_nan=False, separators=(",", ":")) + "\n")

    def clear(self) -> int:
        """Forget all winners; return how many there were."""
        count = len(self.all())
        self.path.unlink(missing_ok=True)
        return count
