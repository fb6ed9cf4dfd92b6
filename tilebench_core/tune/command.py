"""`tilebench tune list|show|clear`: the store of winners."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from tilebench_core.errors import RequestError
from tilebench_core.tune.store import WinnerStore

__all__ = ["tune_command"]


def tune_command(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """`tilebench tune`."""
    parser.add_argument("action", choices=["list", "show", "clear"])
    parser.add_argument("key", nargs="?", help="for show: a winner's key, or its beginning")
    wanted = parser.parse_args(arguments)
    store = WinnerStore()
    if wanted.action == "clear":
        print(f"{store.clear()} winners forgotten ({store.path})")
        return 0
    winners = store.all()
    if wanted.action == "show":
        found = [winner for winner in winners if wanted.key and winner.key.startswith(wanted.key)]
        if not found:
            raise RequestError(f"no winner has the key {wanted.key!r}; `tilebench tune list` shows them")
        print(json.dumps([asdict(winner) for winner in found], indent=1))
        return 0
    for winner in winners:
        case = " ".join(f"{name}={value}" for name, value in winner.params.items())
        gain = f"{winner.default_us / winner.median_us:.2f}×" if winner.default_us else "–"
        print(
            f"{winner.key}  {winner.operator} {winner.dtype} {case} on {winner.backend}, {winner.device}, {winner.kind}: "
            f"{winner.median_us:.2f} µs, {gain} over the default, {json.dumps(dict(winner.config))}"
        )
    print(f"{len(winners)} winners in {store.path}")
    return 0
