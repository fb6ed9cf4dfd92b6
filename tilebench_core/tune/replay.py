"""Pinned winners: the configurations that an earlier campaign found, or that a file lists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilebench_core.campaign import Campaign, find_campaign
from tilebench_core.case import Case
from tilebench_core.errors import RequestError

__all__ = ["Pinned", "pinned_configs"]

Pinned = Mapping[tuple[str, str, str, str], Mapping[str, Any]]
"""(operator, dtype, parameters as text, backend) → configuration."""


def _place(operator: str, dtype: str, params: Mapping[str, Any], backend: str) -> tuple[str, str, str, str]:
    return operator, dtype, json.dumps(dict(params), sort_keys=True, default=str), backend


def pinned_config(pinned: Pinned, operator: str, case: Case, backend: str) -> Mapping[str, Any] | None:
    """The configuration that is pinned for a case on a backend, or None."""
    return pinned.get(_place(operator, case.dtype, case.params, backend))


@lru_cache(maxsize=4)
def pinned_configs(where: str, results_dir: str) -> Pinned:
    """Read what `tune.from_campaign` names: a campaign, or a file of winners.

    A file is a tuning log, the store of winners, `records.jsonl`, or the JSON list that `tilebench tune show` prints.
    Each entry holds `operator`, `dtype`, `params`, `backend` and `config`; the last one for a place stands. Raises
    RequestError if there is nothing of the name, or nothing pinned in it.
    """
    path = Path(where)
    entries = _of_file(path) if path.is_file() else _of_campaign(find_campaign(where, results_dir))
    pinned = {
        _place(entry["operator"], entry["dtype"], entry["params"], entry["backend"]): entry["config"]
        for entry in entries
    }
    if not pinned:
        raise RequestError(
            f"tune.from_campaign={where}: it holds no tuned configuration; run it with tune=shared first"
        )
    return pinned


def _of_campaign(campaign: Campaign) -> list[dict[str, Any]]:
    return [
        {"operator": r.operator, "dtype": r.dtype, "params": r.params, "backend": r.backend, "config": r.config}
        for r in campaign.records()
        if r.mode == "tuned" and r.config is not None and r.outcome.may_have_numbers
    ]


def _of_file(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    try:
        raw = (
            json.loads(text)
            if text.lstrip().startswith("[")
            else [json.loads(line) for line in text.splitlines() if line]
        )
    except ValueError as error:
        raise RequestError(f"tune.from_campaign={path}: not JSON lines: {error}") from error
    keys = {"operator", "dtype", "params", "backend", "config"}
    return [
        entry
        for entry in raw
        if isinstance(entry, dict)
        and keys <= entry.keys()
        and entry.get("event", "winner") == "winner"
        and entry.get("mode", "tuned") == "tuned"
        and entry.get("outcome", "PASSED") in ("PASSED", "SUSPICIOUS")
        and isinstance(entry["config"], dict)
    ]
