"""What a campaign has sent already: `tracking.json` in its folder, one entry per store."""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Sent", "State", "load_state", "save_state"]


@dataclass
class Sent:
    """What one store holds: the experiment, the parent run, (run, digest) of each series, and the digest of each artifact."""

    parent: str | None = None
    experiment_id: str | None = None
    series: dict[str, list[str]] = field(default_factory=dict)
    artifacts: dict[str, str] = field(default_factory=dict)


@dataclass
class State:
    """The campaign's identity in every store, and what each store holds, by `uri#experiment`."""

    campaign_id: str
    stores: dict[str, Sent] = field(default_factory=dict)


def load_state(folder: Path) -> State:
    """Read `tracking.json`; where there is none, or it is damaged, nothing counts as sent."""
    try:
        raw: dict[str, Any] = json.loads((folder / "tracking.json").read_text(encoding="utf-8"))
        stores = {key: Sent(**value) for key, value in raw["stores"].items()}
        return State(str(raw["campaign_id"]), stores)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return State(uuid.uuid4().hex)


def save_state(folder: Path, state: State) -> None:
    """Write `tracking.json` so that a crash leaves either the old or the new one."""
    values = {"campaign_id": state.campaign_id, "stores": {key: vars(sent) for key, sent in state.stores.items()}}
    path = folder / "tracking.json"
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(json.dumps(values), encoding="utf-8")
    draft.replace(path)
