"""What a trajectory was run under, part by part: it is resumed only under the same, and the parts name what changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from tilebench_core.errors import RequestError

__all__ = ["changed_parts", "digest_of", "sources_digest"]

_CHECKER = (
    "llm/compliance.py",
    "llm/compliance_host.py",
    "llm/compliance_names.py",
    "llm/compliance_state.py",
    "llm/reply.py",
)
_EVALUATOR = (
    "verify",
    "timing",
    "worker",
    "llm/guard.py",
    "llm/evaluate.py",
    "llm/candidate.py",
    "records.py",
    "roofline.py",
)


def digest_of(value: Any) -> str:
    """A short hash of a JSON-able value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _digest_files(paths: Iterable[Path]) -> str:
    hashed = hashlib.sha256()
    for path in sorted(paths):
        hashed.update(path.name.encode() + b"\0" + path.read_bytes())
    return hashed.hexdigest()[:16]


def sources_digest() -> dict[str, str]:
    """Hashes of the code that checks candidates and of the code that judges them."""
    root = Path(str(files("tilebench_core")))
    rules = list((root / "llm" / "rules").glob("*.yaml"))
    evaluator = [
        p for name in _EVALUATOR for p in ((root / name).rglob("*.py") if (root / name).is_dir() else [root / name])
    ]
    return {
        "checker": _digest_files([*(root / name for name in _CHECKER), *rules]),
        "evaluator": _digest_files(evaluator),
    }


def changed_parts(kept: Mapping[str, str], now: Mapping[str, str], name: str) -> None:
    """Raise RequestError if a trajectory was begun under another fingerprint; the message names the parts."""
    changed = sorted(part for part in {*kept, *now} if kept.get(part) != now.get(part))
    if changed:
        raise RequestError(
            f"{name} was begun under another {', '.join(changed)}; a trajectory is continued only under the same. "
            "Choose another campaign= or condition="
        )
