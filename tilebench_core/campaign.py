"""A campaign: one folder with the records, the environment and the configuration that they were measured under."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tilebench_core.errors import RequestError
from tilebench_core.records import Record, RecordReader, RecordWriter, latest

__all__ = ["Campaign", "dated_name", "find_campaign", "open_campaign"]


@dataclass
class Campaign:
    """A campaign's folder. `torn` lists the lines of records.jsonl that were set aside."""

    folder: Path
    torn: list[tuple[int, str]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    @property
    def records_path(self) -> Path:
        """Where the records are: records.jsonl, or records.jsonl.gz of a published campaign."""
        packed = self.folder / "records.jsonl.gz"
        return packed if packed.is_file() else self.folder / "records.jsonl"

    @property
    def log_path(self) -> Path:
        """Everything that workers and DSLs printed."""
        return self.folder / "worker.log"

    def records(self) -> list[Record]:
        """The last record of each trial, in the order of the file."""
        if not self.records_path.is_file():
            return []
        reader = RecordReader(self.records_path)
        found = latest(reader)
        self.torn = reader.torn
        return found

    def writer(self) -> RecordWriter:
        """A writer that appends to the records."""
        return RecordWriter(self.folder / "records.jsonl")

    def environment(self) -> dict[str, Any]:
        """What the campaign ran on; empty if it was not captured."""
        path = self.folder / "environment.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def describe(self, environment: Mapping[str, Any], composed: Mapping[str, Any]) -> None:
        """Keep environment and configuration; those of a resumed run are appended under `resumed`."""
        path = self.folder / "environment.json"
        known = self.environment()
        if known:
            known.setdefault("resumed", []).append({**environment, "config": composed})
            merged: Mapping[str, Any] = known
        else:
            merged = environment
            (self.folder / "config.yaml").write_text(yaml.safe_dump(dict(composed), sort_keys=False), encoding="utf-8")
        # Replaced in one step: a run that is killed here must not leave half a file to the one that resumes it.
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps(merged, indent=1, default=str), encoding="utf-8")
        unfinished.replace(path)

    def note(self, **values: Any) -> None:
        """Add what was learnt during the run to the environment."""
        path = self.folder / "environment.json"
        path.write_text(json.dumps({**self.environment(), **values}, indent=1, default=str), encoding="utf-8")


def dated_name() -> str:
    """The name of a campaign that was given none: date and time."""
    return datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")


def open_campaign(results_dir: str, name: str | None) -> Campaign:
    """Open the campaign `name` below `results_dir`, or make it; without a name it is called after date and time."""
    chosen = name or dated_name()
    if "/" in chosen or chosen in (".", "..", ""):
        raise RequestError(f"campaign={chosen!r}: expected a plain name; results_dir=... says where it is kept")
    folder = Path(results_dir) / chosen
    folder.mkdir(parents=True, exist_ok=True)
    return Campaign(folder)


def find_campaign(name: str, results_dir: str = "results") -> Campaign:
    """Find an existing campaign by its name or by the path of its folder; raise RequestError with those that exist."""
    for folder in (Path(name), Path(results_dir) / name):
        if (folder / "records.jsonl").is_file() or (folder / "records.jsonl.gz").is_file():
            return Campaign(folder)
    there = sorted(path.parent.name for path in Path(results_dir).glob("*/records.jsonl*"))
    raise RequestError(f"no campaign {name!r} here; expected a folder or one of: {', '.join(there) or 'none yet'}")
