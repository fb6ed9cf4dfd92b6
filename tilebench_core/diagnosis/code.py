"""One compiled kernel as numbers: resources, and the static instruction mix by family, width and opcode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilebench_core.backend import LaunchCode
from tilebench_core.diagnosis.cubin import kernel_uses
from tilebench_core.diagnosis.families import FAMILIES, OTHER, PADDING, access_bits, base_opcode
from tilebench_core.diagnosis.sass import Listing, parse_sass
from tilebench_core.diagnosis.tools import disassemble
from tilebench_core.errors import TilebenchError

__all__ = ["KernelCode", "kernel_codes"]

_WIDE = ("LDG", "STG", "LDS", "STS", "LDL", "STL", "LDGSTS")


@dataclass(frozen=True, kw_only=True)
class KernelCode:
    """One kernel of one `run`. Counts of instructions are static: how often they stand in the code, not how often they run.

    `launches` is how often `run` launched it. `static_shared_bytes` is what the binary itself declares (from sm_90 on it
    holds 1,024 bytes that the system reserves), `dynamic_shared_bytes` what a launch adds, `stack_bytes` a thread's local
    memory. `instructions` leaves padding out. `texts` are the other stages of the compiler by name.
    """

    name: str
    launches: int
    threads: int | None
    registers: int
    static_shared_bytes: int
    dynamic_shared_bytes: int | None
    stack_bytes: int
    barriers: int
    code_bytes: int
    opcodes: Mapping[str, int]
    families: Mapping[str, int]
    widths: Mapping[str, int]
    listing: Listing
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def instructions(self) -> int:
        """Static instructions, padding left out."""
        return sum(number for family, number in self.families.items() if family != PADDING)

    @property
    def unnamed(self) -> dict[str, int]:
        """Opcodes that no family claims, with their counts."""
        return {
            i.opcode: self.opcodes[i.opcode] for i in self.listing.instructions if i.family == OTHER
        }  # several instructions share an opcode; a dict keeps each once

    @property
    def spills(self) -> int:
        """Static loads and stores of local memory: spilled registers, or arrays indexed at run time."""
        return self.families.get("local memory", 0)

    def as_json(self) -> dict[str, Any]:
        """A JSON-able mapping without listing and texts."""
        names = ("name", "launches", "threads", "registers", "static_shared_bytes", "dynamic_shared_bytes",
                 "stack_bytes", "barriers", "code_bytes", "instructions", "families", "widths", "opcodes")  # fmt: skip
        return {"counts": "static", **{name: getattr(self, name) for name in names}, "stages": [*self.texts]}


def kernel_codes(launches: Sequence[LaunchCode]) -> list[KernelCode]:
    """Disassemble what a `run` launches; a kernel that is launched several times appears once.

    Raises TilebenchError if a launch has no binary, and what `disassemble` raises.
    """
    counts: Counter[tuple[str, bytes]] = Counter()
    first: dict[tuple[str, bytes], LaunchCode] = {}
    for launch in launches:
        cubin = launch.stages.get("cubin")
        if not isinstance(cubin, bytes):
            raise TilebenchError(f"kernel {launch.name}: the compiler gave no binary, only {', '.join(launch.stages)}")
        key = launch.name, cubin
        counts[key] += 1
        first.setdefault(key, launch)
    read: dict[bytes, dict[str, Listing]] = {}
    for _, cubin in first:
        if cubin not in read:
            read[cubin] = {listing.name: listing for listing in parse_sass(disassemble(cubin))}
    return [_kernel_code(launch, read[key[1]], key[1], counts[key]) for key, launch in first.items()]


def _kernel_code(launch: LaunchCode, listings: Mapping[str, Listing], cubin: bytes, count: int) -> KernelCode:
    uses = kernel_uses(cubin)
    names = [launch.name] if launch.name in uses else [*uses]
    if len(names) != 1 or names[0] not in listings:
        raise TilebenchError(f"kernel {launch.name}: the binary holds {', '.join(uses) or 'no kernel'} instead")
    use, listing = uses[names[0]], listings[names[0]]
    found = Counter(instruction.family for instruction in listing.instructions)
    reported = launch.resources
    return KernelCode(
        name=launch.name,
        launches=count,
        threads=reported.threads or use.threads,
        registers=use.registers,
        static_shared_bytes=use.shared_bytes,
        dynamic_shared_bytes=reported.dynamic_shared_bytes,
        stack_bytes=use.frame_bytes,
        barriers=use.barriers,
        code_bytes=listing.code_bytes,
        opcodes=dict(Counter(i.opcode for i in listing.instructions).most_common()),
        families={family: found[family] for family in FAMILIES if found[family]},
        widths=_widths(listing),
        listing=listing,
        texts={stage: text for stage, text in launch.stages.items() if isinstance(text, str)},
    )


def _widths(listing: Listing) -> dict[str, int]:
    """Memory instructions by opcode and bits per thread, e.g. {"LDG.128": 4}; matrix fragments (LDSM, STSM) by name."""
    counts: Counter[str] = Counter()
    for instruction in listing.instructions:
        base = base_opcode(instruction.opcode)
        if base in _WIDE:
            counts[f"{base}.{access_bits(instruction.opcode)}"] += 1
        elif base in ("LDSM", "STSM") or base.startswith(("UTMA", "UBLK")):
            counts[base] += 1
    return dict(sorted(counts.items()))
