"""The tuning log of a campaign: every candidate with its samples or its failure, apart from the measurements.

A candidate is announced before it runs. One that was announced and never ended took its worker with it: after a restart
the search goes on with the next, and the log says what happened to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Candidate", "Journal", "candidate_key"]


def candidate_key(config: Mapping[str, Any]) -> str:
    """A configuration as text, the same for the same values in any order."""
    return json.dumps(dict(config), sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One configuration of a search. `failure` says why it has no samples; `dropped` that it was slower than the best."""

    config: Mapping[str, Any]
    samples_us: tuple[float, ...] = ()
    median_us: float | None = None
    failure: str | None = None
    dropped: bool = False
    finalist: bool = False
    compile_s: float | None = None
    measure_s: float | None = None
    registers: int | None = None
    spill_bytes: int | None = None


class Journal:
    """`tuning.jsonl` in the campaign's folder; one line per event of a search."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, event: str, search: str, **content: Any) -> None:
        """Append one event; it is on its way to the disk when this returns."""
        line = json.dumps({"event": event, "search": search, **content}, allow_nan=False, separators=(",", ":"))
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def candidate(self, search: str, candidate: Candidate) -> None:
        """Append the end of a candidate."""
        self.write("candidate", search, **asdict(candidate))

    def ended(self, search: str) -> dict[str, Candidate]:
        """What an interrupted search knows: its candidates by key. One that was announced and never ended has failed."""
        found: dict[str, Candidate] = {}
        for event in self.events(search):
            if event["event"] == "started":
                failure = "it hung or took the worker with it"
                found[candidate_key(event["config"])] = Candidate(config=event["config"], failure=failure)
            elif event["event"] == "candidate":
                values = {k: v for k, v in event.items() if k not in ("event", "search")}
                candidate = Candidate(**{**values, "samples_us": tuple(values["samples_us"])})
                found[candidate_key(candidate.config)] = candidate
        return found

    def events(self, search: str | None = None) -> list[dict[str, Any]]:
        """All whole events, of one search or of all; a line that a crash tore is left out."""
        if not self.path.is_file():
            return []
        events = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue  # torn in mid-write: the candidate it spoke of counts as not ended
            if search is None or event.get("search") == search:
                events.append(event)
        return events
