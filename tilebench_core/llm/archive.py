"""A trajectory on disk: files that are written once, and a journal whose lines are chained by checksums.

A step writes its files, each in one piece (a temporary file that is renamed), and then one line of the journal that names
them with their checksums. Only what the journal names is evidence; what a crash left without a line is written anew,
but for a reply, which has been paid for and is adopted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilebench_core.environment import now
from tilebench_core.errors import TilebenchError

__all__ = ["Archive", "ArchiveError", "Entry", "digest"]

_JOURNAL = "journal.jsonl"


class ArchiveError(TilebenchError):
    """The archive was changed or is damaged; nothing is run on top of it."""


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)


def digest(content: bytes | str) -> str:
    """SHA-256 as hexadecimal digits."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the journal. `files` maps names below the folder to checksums; `data` is what the step says itself."""

    event: str
    round: int | None
    at: str
    files: Mapping[str, str]
    data: Mapping[str, Any]


@dataclass
class Archive:
    """The folder of one trajectory. Opening it checks the whole chain and every file."""

    folder: Path
    entries: list[Entry] = field(default_factory=list)
    torn: int = 0
    _last: str = ""
    _size: int = 0

    @classmethod
    def open(cls, folder: Path) -> Archive:
        """Open or create the archive in `folder`. Raises ArchiveError where a line or a file does not agree."""
        archive = cls(folder)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / _JOURNAL
        if path.is_file():
            archive._read(path.read_bytes())
            archive.check()
        return archive

    def _read(self, content: bytes) -> None:
        lines = content.split(b"\n")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                values = json.loads(line)
                entry = Entry(**{key: values[key] for key in ("event", "round", "at", "files", "data")})
            except (ValueError, KeyError, TypeError) as error:
                # A crash tears a line at most in mid-write, so only a line whose successor continues the chain is excused.
                self.torn += 1
                if self.torn > 100:
                    raise ArchiveError(f"{self.folder / _JOURNAL}: more torn lines than crashes can leave") from error
                continue
            if values.get("previous") != self._last:
                raise ArchiveError(f"{self.folder / _JOURNAL}:{number}: does not follow the line before it")
            self.entries.append(entry)
            self._last = digest(line)

    def check(self) -> None:
        """Compare every file that the journal names with its checksum."""
        for entry in self.entries:
            for name, wanted in entry.files.items():
                path = self.folder / name
                if not path.is_file():
                    raise ArchiveError(f"{path}: is missing; the journal names it")
                if digest(path.read_bytes()) != wanted:
                    raise ArchiveError(f"{path}: was changed after it was archived")

    def find(self, event: str, round_number: int | None = None) -> Entry | None:
        """The last entry of `event` in a round, or None."""
        for entry in reversed(self.entries):
            if entry.event == event and entry.round == round_number:
                return entry
        return None

    def all(self, event: str) -> Iterator[Entry]:
        """Every entry of `event`, in order."""
        return (entry for entry in self.entries if entry.event == event)

    def read(self, name: str) -> str:
        """The text of an archived file."""
        return (self.folder / name).read_text(encoding="utf-8")

    def load(self, name: str) -> Any:
        """The content of an archived JSON file."""
        return json.loads(self.read(name))

    def unjournaled(self, name: str) -> bool:
        """True for a file that is complete on disk and that no line names: a crash came between the two."""
        return (self.folder / name).is_file() and not any(name in entry.files for entry in self.entries)

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file in one piece. Raises ArchiveError if the journal names it already with other content."""
        path, data = self.folder / name, content.encode() if isinstance(content, str) else content
        for entry in self.entries:
            if name in entry.files:
                if entry.files[name] == digest(data):
                    return
                raise ArchiveError(f"{path}: is archived and cannot be changed")
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.chmod(0o444)
        unfinished.replace(path)

    def record(self, event: str, round_number: int | None = None, files: tuple[str, ...] = (), **data: Any) -> Entry:
        """Append a line that names `files`, which must be there; it is on disk when this returns."""
        sums = {name: digest((self.folder / name).read_bytes()) for name in files}
        entry = Entry(event=event, round=round_number, at=now(), files=sums, data=data)
        values = {**entry.__dict__, "previous": self._last}
        line = json.dumps(values, sort_keys=True, allow_nan=False, separators=(",", ":")).encode()
        path = self.folder / _JOURNAL
        with path.open("ab", buffering=0) as journal:
            # A line that a crash tore is kept apart from the next one; nothing that was written is ever removed.
            torn = journal.tell() > 0 and _last_byte(path) != b"\n"
            journal.write((b"\n" if torn else b"") + line + b"\n")
            os.fsync(journal.fileno())
        self.entries.append(entry)
        self._last = digest(line)
        return entry

    def keep(self, event: str, round_number: int | None, contents: Mapping[str, Any], **data: Any) -> Entry:
        """Write `contents` (text or bytes as they are, anything else as JSON) and journal them as one step."""
        for name, content in contents.items():
            if not isinstance(content, (str, bytes)):
                content = json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n"
            self.write(name, content)
        return self.record(event, round_number, tuple(contents), **data)
