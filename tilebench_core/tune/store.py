"""The store of winners: one file for all backends, found again by the next process.

A winner's key is everything that can change which configuration wins: backend and its options, kernel source, shapes,
strides and dtypes of the inputs, plain values, device, versions, the conditions of timing, the kind of search, and the
search space.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock

from tilebench_core.case import Case
from tilebench_core.kernel import Config
from tilebench_core.operator_config import OperatorConfig
from tilebench_core.tune.journal import candidate_key
from tilebench_core.tune.sharing import is_near, reach

__all__ = [
    "Winner",
    "WinnerStore",
    "candidates_of",
    "code_key",
    "default_path",
    "describe_inputs",
    "known_winner",
    "winner_key",
]


@dataclass(frozen=True, kw_only=True)
class Winner:
    """A configuration that won a search, and the search's figures.

    `code` is the part of the key that all cases of a kernel share. `median_us` is what the search measured: of a native
    search by the DSL's own clock. `seconds` is the wall time of the search in the process that ended it; `compile_s`
    and `measure_s` add up over the candidates, where the search can tell them apart.
    """

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
    code: str = ""
    compile_s: float | None = None
    measure_s: float | None = None


def default_path() -> Path:
    """Where winners are kept: TILEBENCH_CACHE, or the user's cache folder."""
    base = (
        os.environ.get("TILEBENCH_CACHE")
        or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tilebench"
    )
    return Path(base) / "winners.jsonl"


def candidates_of(default: Config, space: Sequence[Config]) -> list[Config]:
    """The default configuration first, then the space in its own order, each once."""
    unique = {candidate_key(config): config for config in [default, *space]}
    return list(unique.values())


def describe_inputs(inputs: Sequence[Any]) -> list[Any]:
    """Shapes, strides and dtypes of the tensors, and the plain values, of a kernel's inputs."""
    return [
        [list(value.shape), list(value.stride()), str(value.dtype)] if hasattr(value, "stride") else value
        for value in inputs
    ]


def _digest(identity: Any) -> str:
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def code_key(
    *,
    backend: str,
    options: Mapping[str, Any],
    kernel_source: str,
    device: str,
    versions: Mapping[str, str],
    conditions: Mapping[str, Any],
    kind: str,
) -> str:
    """The part of a winner's key that does not depend on the case."""
    return _digest([backend, dict(options), kernel_source, device, dict(versions), dict(conditions), kind])


def winner_key(code: str, inputs: Sequence[Any], space: Iterable[Mapping[str, Any]]) -> str:
    """The key under which a winner is kept."""
    return _digest([code, describe_inputs(inputs), [dict(config) for config in space]])


def known_winner(
    winners: Sequence[Winner],
    *,
    key: str,
    code: str,
    operator: OperatorConfig,
    case: Case,
    candidates: Sequence[Config],
    share: str,
    within: float,
) -> Winner | None:
    """The winner under `key`; else, with `share` "dtype" or "operator", that of the nearest case of the same code.

    The nearest is the one whose compulsory bytes differ least, by a factor of `within` at most; its configuration must be one
    of `candidates`.
    """
    exact = next((winner for winner in winners if winner.key == key), None)
    if exact is not None or share == "case":
        return exact
    allowed = {candidate_key(config) for config in candidates}
    size = operator.bytes(case)
    near = []
    for winner in winners:
        alike = winner.code == code and reach(share, winner.dtype) == reach(share, case.dtype)
        if alike and candidate_key(winner.config) in allowed:
            its_size = operator.bytes(replace(case, params=winner.params, dtype=winner.dtype))
            if is_near(size, its_size, within):
                near.append((abs(its_size - size), winner))
    return min(near, key=lambda pair: pair[0])[1] if near else None


@cache
def _parsed(line: str) -> Winner | None:
    """The winner in a line of a store, or None if it is torn or another version's: then the search is simply made again.

    Kept, since a campaign reads the store before every tuned trial: parsing thousands of lines takes longer than a short one.
    """
    try:
        return Winner(**json.loads(line))
    except (ValueError, TypeError):
        return None


class WinnerStore:
    """Winners in one JSON-lines file; the last line of a key stands. Writers of several processes take turns."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()

    def all(self) -> list[Winner]:
        """Every winner, the latest per key."""
        if not self.path.is_file():
            return []
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        return list({winner.key: winner for line in lines if (winner := _parsed(line)) is not None}.values())

    def get(self, key: str) -> Winner | None:
        """The winner kept under `key`, or None."""
        return next((winner for winner in self.all() if winner.key == key), None)

    def put(self, winner: Winner) -> None:
        """Keep a winner."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(str(self.path) + ".lock"):
            torn = self.path.is_file() and self.path.read_bytes()[-1:] not in (b"", b"\n")
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" * torn + json.dumps(asdict(winner), allow_nan=False, separators=(",", ":")) + "\n")

    def clear(self) -> int:
        """Forget all winners; return how many there were."""
        count = len(self.all())
        self.path.unlink(missing_ok=True)
        return count
