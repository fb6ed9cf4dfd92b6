"""From a reply to the files in it: one fenced block per file, titled with the file's name."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilebench_core.llm.status import Status

__all__ = ["Candidate", "candidates_in", "file_name"]

_MAX_BYTES = 200_000
_FENCE = re.compile(r"^[ \t]{0,3}(`{3,}|~{3,})([^\n`]*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """The code for one backend, or the status that says why there is none."""

    backend: str
    source: str | None = None
    problem: Status | None = None
    reason: str | None = None


@dataclass(frozen=True)
class _Block:
    title: str
    source: str
    closed: bool


def file_name(backend: str) -> str:
    """The file that a kernel of `backend` stands in."""
    return f"impl_{backend}.py"


def _blocks(text: str) -> list[_Block]:
    """The fenced blocks of a Markdown text; the title is the fence's info string and the line before the fence."""
    blocks, position = [], 0
    while (opened := _FENCE.search(text, position)) is not None:
        before = text[: opened.start()].rstrip().rpartition("\n")[2]
        fence = opened.group(1)
        close = re.compile(rf"^[ \t]{{0,3}}{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$", re.MULTILINE)
        closed = close.search(text, opened.end() + 1)
        end = closed.start() if closed else len(text)
        blocks.append(_Block(f"{before}\n{opened.group(2)}", text[opened.end() + 1 : end], closed is not None))
        position = closed.end() if closed else len(text)
    return blocks


def candidates_in(text: str, finish: str, backends: Sequence[str]) -> dict[str, Candidate]:
    """Find the candidate of each backend. A single untitled block is accepted where a single file was asked for."""
    blocks = [block for block in _blocks(text) if block.source.strip()]
    return {backend: _candidate(backend, blocks, finish, alone=len(backends) == 1) for backend in backends}


def _candidate(backend: str, blocks: list[_Block], finish: str, alone: bool) -> Candidate:
    name = file_name(backend)
    mine = [block for block in blocks if name in f"{block.title}\n{block.source[:200].partition(chr(10))[0]}"]
    if not mine and alone:
        mine = (
            [block for block in blocks if re.search(r"^def run\b", block.source, re.MULTILINE)]
            if len(blocks) > 1
            else blocks
        )
    if not mine:
        if finish == "length":
            return Candidate(
                backend=backend, problem=Status.TRUNCATED, reason=f"the reply ended before a block {name} began"
            )
        said = "the model declined" if finish == "refusal" else f"no fenced block is titled {name}"
        return Candidate(backend=backend, problem=Status.NO_CODE, reason=said)
    if len(mine) > 1:
        reason = f"{len(mine)} blocks are titled {name}; expected one"
        return Candidate(backend=backend, problem=Status.MALFORMED, reason=reason)
    block = mine[0]
    if not block.closed:
        return Candidate(backend=backend, problem=Status.TRUNCATED, reason=f"the block {name} has no end")
    problem = _problem(block.source)
    if problem is not None:
        return Candidate(backend=backend, source=block.source, problem=Status.MALFORMED, reason=problem)
    return Candidate(backend=backend, source=block.source)


def _problem(source: str) -> str | None:
    """Why `source` is no kernel file, or None."""
    if len(source.encode()) > _MAX_BYTES:
        return f"the file has more than {_MAX_BYTES} bytes"
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        return f"{type(error).__name__}: {getattr(error, 'msg', error)}{line}"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "run":
            return None
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "run" for t in node.targets):
            return None
    return "the module defines no function `run`"
