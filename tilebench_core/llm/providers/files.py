"""Providers that answer from files: `scripted` from a file of replies, `replay` from the archive of an earlier run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from tilebench_core.errors import ConfigError
from tilebench_core.llm.provider import Provider, ProviderError, Reply, Request
from tilebench_core.llm.usage import Usage
from tilebench_core.operator_config import load_yaml

__all__ = ["Replay", "Scripted"]


@dataclass(frozen=True, kw_only=True)
class ScriptedOptions:
    """`script` is a YAML file: `replies`, a list of {text, and optionally operator, backend, finish, usage}."""

    script: str = ""


class Scripted(Provider):
    """Round n of a trajectory gets the n-th of those replies whose operator and backend, where given, are its own."""

    name: ClassVar[str] = "scripted"
    Options: ClassVar[type] = ScriptedOptions

    @cached_property
    def _replies(self) -> list[Mapping[str, Any]]:
        path = Path(self.options.script)
        replies = (load_yaml(path) or {}).get("replies")
        if not isinstance(replies, list) or not all(isinstance(reply.get("text"), str) for reply in replies):
            raise ConfigError(f"{path}: expected `replies`, a list of mappings that each hold `text`")
        return replies

    def probe(self) -> str | None:
        """See `Provider.probe`."""
        return (
            None
            if Path(self.options.script).is_file()
            else f"model.options.script={self.options.script!r}: no such file"
        )

    def identity(self) -> Mapping[str, Any]:
        """See `Provider.identity`."""
        return {"script": hashlib.sha256(Path(self.options.script).read_bytes()).hexdigest()[:16]}

    def send(self, request: Request, progress: Callable[[int], None]) -> Reply:
        """See `Provider.send`."""
        mine = [reply for reply in self._replies if _meant_for(reply, request.key)]
        number = int(request.key["round"])
        if number >= len(mine):
            raise ProviderError(
                f"the script holds {len(mine)} replies for this trajectory and no round {number}", retry=False
            )
        usage = mine[number].get("usage") or {}
        return Reply(
            text=mine[number]["text"], finish=mine[number].get("finish", "stop"), usage=Usage(**usage), model=request.model,
            raw_usage=usage,
        )  # fmt: skip


def _meant_for(reply: Mapping[str, Any], key: Mapping[str, Any]) -> bool:
    backend = reply.get("backend")
    return reply.get("operator") in (None, key["operator"]) and (backend is None or backend in key["backends"])


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """`archive` is the folder of a campaign that was run before."""

    archive: str = ""


class Replay(Provider):
    """Answers with the archived reply of the same operator, backends, dtypes, condition and round; no network, no cost anew."""

    name: ClassVar[str] = "replay"
    Options: ClassVar[type] = ReplayOptions

    @cached_property
    def _found(self) -> dict[str, Path]:
        found = {}
        for path in sorted(Path(self.options.archive).glob("llm/*/trajectory.json")):
            found[_place(json.loads(path.read_text(encoding="utf-8"))["key"])] = path.parent
        return found

    def probe(self) -> str | None:
        """See `Provider.probe`."""
        return None if self._found else f"model.options.archive={self.options.archive!r}: holds no trajectories"

    def identity(self) -> Mapping[str, Any]:
        """See `Provider.identity`."""
        sums = [hashlib.sha256((folder / "journal.jsonl").read_bytes()).hexdigest() for folder in self._found.values()]
        return {"archive": hashlib.sha256("".join(sums).encode()).hexdigest()[:16]}

    def send(self, request: Request, progress: Callable[[int], None]) -> Reply:
        """See `Provider.send`."""
        folder = self._found.get(_place(request.key))
        path = folder / f"round_{request.key['round']:02d}" / "response.json" if folder else None
        if path is None or not path.is_file():
            raise ProviderError(f"the archive holds no reply for {dict(request.key)}", retry=False)
        kept = json.loads(path.read_text(encoding="utf-8"))
        return Reply(**{**kept, "usage": Usage(**kept["usage"])})


def _place(key: Mapping[str, Any]) -> str:
    return json.dumps([key["operator"], sorted(key["backends"]), list(key["dtypes"]), key["condition"]])
