"""What a model is told about an error: the useful part of it, without anything that belongs to this machine."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilebench_core.llm.guard import DIAGNOSTIC

__all__ = ["diagnostic_of", "one_line", "sanitised"]

_LINES = 30
_CHARACTERS = 2500
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07")
_PATH = re.compile(r"(?<![\w.])(?:/[\w.+@-]+)+/([\w.+@-]+)")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
_FRAME = re.compile(r'^  File "([^"]+)", line \d+')


def sanitised(text: str, folders: Sequence[str] = ()) -> str:
    """`text` without colours, control characters, addresses and the folders of paths, and unable to close a fence."""
    text = _ANSI.sub("", text)
    for folder in folders:
        text = text.replace(f"{folder}/", "")
    text = _PATH.sub(r"\1", text)
    text = _ADDRESS.sub("0x…", text)
    text = text.replace("candidate_", "impl_").replace("```", "'''")
    return "".join(character for character in text if character == "\n" or character == "\t" or character.isprintable())


def one_line(text: str) -> str:
    """The first line of a reason, sanitised and cut."""
    return sanitised(" ".join(text.split()))[:400]


def diagnostic_of(log: str, folders: Sequence[str] = ()) -> str | None:
    """The last exception in a worker's log, with the frames of the candidate's own file; None where there is none."""
    start = log.rfind(DIAGNOSTIC)
    if start < 0:
        return None
    lines = log[start:].splitlines()[1:]
    kept, inside = [], True
    for line in lines:
        frame = _FRAME.match(line)
        if frame is not None:
            inside = "candidate_" in frame.group(1)
        elif not line.startswith("    "):
            inside = True  # a message between the frames, or the exception itself
        if inside:
            kept.append(line)
    text = sanitised("\n".join(kept[-_LINES:]), folders).strip()
    return text[-_CHARACTERS:] or None
