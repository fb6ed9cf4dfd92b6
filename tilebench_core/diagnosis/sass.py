"""SASS as values: what nvdisasm or cuobjdump print, read instruction by instruction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilebench_core.diagnosis.families import family_of

__all__ = ["Instruction", "Listing", "parse_sass"]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `address` is its offset in the kernel in bytes; `source` is (file, line) where the compiler kept it."""

    address: int
    opcode: str
    operands: str = ""
    predicate: str = ""
    source: tuple[str, int] | None = None

    @property
    def family(self) -> str:
        """One of `families.FAMILIES`."""
        return family_of(self.opcode, self.operands)

    @property
    def text(self) -> str:
        """The instruction as it is written: `@P0 LDG.E.128 R4, desc[UR4][R2.64]`."""
        return " ".join(filter(None, [self.predicate, self.opcode, self.operands]))


@dataclass(frozen=True)
class Listing:
    """The instructions of one function of a binary, padding behind the last of them left out."""

    name: str
    instructions: tuple[Instruction, ...]

    @property
    def code_bytes(self) -> int:
        """Size up to the last instruction, in bytes."""
        return self.instructions[-1].address + 16 if self.instructions else 0

    def around(self, address: int, lines: int = 4) -> Sequence[Instruction]:
        """The instruction at `address` with `lines` before and behind it; empty if there is none."""
        at = next((i for i, found in enumerate(self.instructions) if found.address == address), None)
        return () if at is None else self.instructions[max(0, at - lines) : at + lines + 1]


_FUNCTION = re.compile(r"^\s*(?:\.section\s+\.text\.([^,\s]+),|Function : (\S+))")
_SOURCE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
_INSTRUCTION = re.compile(
    r"^\s*/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*(?:\.[A-Za-z0-9_]+)*)\s*(.*?)\s*;"
)


def parse_sass(text: str) -> list[Listing]:
    """Read the output of `nvdisasm -c -g` or `cuobjdump -sass`; one Listing per function, in the order of the text.

    The loop that a compiler puts behind the last EXIT, a branch to itself, and the NOPs behind it are never executed and
    are left out.
    """
    functions: list[tuple[str, list[Instruction]]] = []
    source: tuple[str, int] | None = None
    for line in text.splitlines():
        found = _INSTRUCTION.match(line)
        if found is not None and functions:
            address, predicate, opcode, operands = found.groups()
            functions[-1][1].append(
                Instruction(int(address, 16), opcode, " ".join(operands.split()), (predicate or "").strip(), source)
            )
            continue
        located = _SOURCE.match(line)
        if located is not None:
            source = located[1], int(located[2])
            continue
        named = _FUNCTION.match(line)
        if named is not None:
            functions.append((named[1] or named[2], []))
            source = None
    return [Listing(name, _without_tail(body)) for name, body in functions if body]


def _without_tail(body: Sequence[Instruction]) -> tuple[Instruction, ...]:
    end = len(body)
    while end and body[end - 1].opcode == "NOP":
        end -= 1
    if 1 < end < len(body) and body[end - 1].opcode == "BRA" and not body[end - 1].predicate:
        end -= 1
    return tuple(body[:end])
