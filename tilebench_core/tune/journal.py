"""The tuning log of a campaign: every candidate with its samples or its failure, apart from the measurements.

A candidate is announced before it runs. If the worker dies or hangs in it, the run says so in the log, and the search
goes on with the next. A candidate that was announced and about which nothing more is known was interrupted together
with the whole run: that is not its fault, and it is measured again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Candidate", "Journal", "candidate_key", "tuning_log"]


def candidate_key(config: Mapping[str, Any]) -> str:
    """A configuration as text, the same for the same values in any order."""
    return json.dumps(dict(config), sort_keys=True, separators=(",", ":"))


def tuning_log(campaign_dir: str | Path) -> Journal:
    """The tuning log of the campaign in a folder."""
    return Journal(Path(campaign_dir) / "tuning.jsonl")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One configuration of a search. `failure` says why it has no median; `dropped` that it was slower than the best."""

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


_ENDS = ("candidate", "lost", "finals", "winner")
"""Events after which nothing that a search had announced is open."""


class Journal:
    """`tuning.jsonl` in the campaign's folder; one line per event of a search."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, event: str, search: str, **content: Any) -> None:
        """Append one event; it is on its way to the disk when this returns."""
        line = json.dumps({"event": event, "search": search, **content}, allow_nan=False, separators=(",", ":"))
        torn = self._torn()
        # One write per line: the jobs of a sweep append to the same file.
        with self.path.open("ab", buffering=0) as file:
            file.write(b"\n" * torn + line.encode() + b"\n")

    def _torn(self) -> bool:
        """True if a crash left the last line without its end: what is appended must not continue it."""
        try:
            with self.path.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                return file.read(1) != b"\n"
        except OSError:  # there is no file yet, or it is empty
            return False

    def candidate(self, search: str, candidate: Candidate) -> None:
        """Append the end of a candidate."""
        self.write("candidate", search, **asdict(candidate))

    def finals(self, search: str, candidates: Sequence[Candidate]) -> None:
        """Append the ends of all finalists, in one line: a choice among some of them would not be one."""
        self.write("finals", search, candidates=[asdict(candidate) for candidate in candidates])

    def lost(self, trial: str | None, reason: str) -> None:
        """Say that the worker was lost in what `trial`'s search had announced last: a candidate, or the finalists."""
        announced: dict[str, Any] | None = None
        for event in self.events():
            if event["event"] in ("started", "finalists") and event.get("trial") == trial:
                announced = event
            elif announced is not None and event["search"] == announced["search"]:
                announced = None if event["event"] in _ENDS else announced
        if announced is not None:
            self.write("lost", announced["search"], trial=trial, config=announced.get("config"), reason=reason)

    def ended(self, search: str) -> dict[str, Candidate]:
        """What an interrupted search knows: the candidates that ended or took their worker with them, by key."""
        found: dict[str, Candidate] = {}
        for event in self._since_winner(search):
            if event["event"] == "lost" and event["config"] is not None:
                found[candidate_key(event["config"])] = Candidate(config=event["config"], failure=event["reason"])
            ends = {"candidate": [event], "finals": event.get("candidates", [])}.get(event["event"], [])
            found.update({candidate_key(raw["config"]): as_candidate(raw) for raw in ends})
        return found

    def lost_finalists(self, search: str) -> str | None:
        """Why the worker was lost while the finalists took turns, or None."""
        lost = [e for e in self._since_winner(search) if e["event"] == "lost" and e["config"] is None]
        return str(lost[-1]["reason"]) if lost else None

    def _since_winner(self, search: str) -> list[dict[str, Any]]:
        """The events of a search that has not ended yet; one that has ended is made anew, from its beginning."""
        events = [event for event in self.events(search) if event["event"] != "search"]
        last = max((place for place, event in enumerate(events) if event["event"] == "winner"), default=-1)
        return events[last + 1 :]

    def events(self, search: str | None = None) -> list[dict[str, Any]]:
        """All whole events, of one search or of all; a line that a crash tore is left out."""
        if not self.path.is_file():
            return []
        events = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue  # torn in mid-write: the candidate it spoke of counts as not ended
            if search is None or event.get("search") == search:
                events.append(event)
        return events


def as_candidate(event: Mapping[str, Any]) -> Candidate:
    """The candidate that an event of the log describes."""
    values = {key: value for key, value in event.items() if key in Candidate.__dataclass_fields__}
    return Candidate(**{**values, "samples_us": tuple(values.get("samples_us", ()))})
