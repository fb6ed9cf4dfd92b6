"""Quantities derived from what was counted and compiled, for one side of a comparison.

A quantity whose inputs are missing is absent, with its reason; it is never 0. Static ones come from the generated code,
the others from a verified profile and the campaign's record.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilebench_core.diagnosis.families import base_opcode, family_of
from tilebench_core.diagnosis.profiles import Profile
from tilebench_core.records import Record

__all__ = ["Quantity", "Side", "conflict_class", "derive"]

_WARP_THREADS, _SECTOR_BYTES = 32, 32
_CONFOUNDED_BELOW_PCT = 98.0
_LIMITERS = {"occupancy_limit_registers": "registers", "occupancy_limit_shared": "shared memory", "occupancy_limit_warps": "warps",
             "occupancy_limit_blocks": "blocks", "occupancy_limit_barriers": "barriers"}  # fmt: skip


@dataclass(frozen=True)
class Side:
    """All that is known of one backend on one case: record, profile, the inspection as it is kept, and its launch floor."""

    record: Record
    profile: Profile | None = None
    inspection: Mapping[str, Any] | None = None
    floor_us: float | None = None


@dataclass(frozen=True)
class Quantity:
    """One value: a number, a word, or None with the reason. `note` says what qualifies it; `static` whether code says it."""

    value: float | str | None
    unit: str = ""
    note: str = ""
    static: bool = False
    missing: str = field(default="")

    @property
    def text(self) -> str:
        """The value for a table, or a dash."""
        if self.value is None:
            return f"– ({self.missing})" if self.missing else "–"
        if isinstance(self.value, str):
            text = self.value
        elif abs(self.value) >= 1000:
            text = f"{self.value:,.0f}"
        else:
            text = f"{self.value:.3g}" if self.value != round(self.value) else f"{self.value:.0f}"
        return " ".join(filter(None, [text, self.unit, f"({self.note})" if self.note else ""]))


def conflict_class(share: float) -> str:
    """A class of a share of shared-memory wavefronts that are bank conflicts."""
    for bound, name in ((0.001, "none"), (0.01, "likely"), (0.1, "mild"), (0.3, "moderate")):
        if share < bound:
            return name
    return "severe"


def derive(side: Side) -> dict[str, Quantity]:
    """All quantities of one side, by name, in the order in which tables list them."""
    found: dict[str, Quantity] = {}
    if side.record.median_us:
        found["latency"] = Quantity(side.record.median_us, "µs")
        if side.floor_us is not None:
            found["launch-bound share"] = Quantity(
                side.floor_us / side.record.median_us, "", f"floor {side.floor_us:.2f} µs"
            )
    if side.profile is not None and side.profile.verified:
        found.update(_counted(side.profile, side.record, side.inspection))
    if side.inspection is not None and side.inspection["kernels"]:
        found.update(_static(side.inspection["kernels"]))
    return found


def _counted(profile: Profile, record: Record, inspection: Mapping[str, Any] | None) -> dict[str, Quantity]:
    total, found = profile.total, {}

    def plain(name: str, metric: str, unit: str = "", note: str = "") -> None:
        value = total(metric)
        reasons = [launch.missing[metric] for launch in profile.launches if metric in launch.missing]
        found[name] = Quantity(
            value, unit, note if value is not None else "", missing=reasons[0] if reasons else "not counted"
        )

    launches = len(profile.launches)
    beside = sum(profile.auxiliary.values())
    found["launches"] = Quantity(launches, "", f"and {beside} of libraries, not profiled" if beside else "")
    plain("instructions", "instructions")
    plain("issue active", "issue_active_pct", "%")
    found["DRAM bytes over compulsory"] = _dram(profile, record)
    plain("DRAM throughput", "dram_throughput_pct", "% of peak")
    plain("L2 hit rate", "l2_hit_pct", "%")
    for kind in ("load", "store"):
        found[f"sectors per global {kind}"] = _sectors(profile, kind, inspection)
    found["bank-conflict share"] = _conflicts(profile)
    plain("occupancy, achieved", "occupancy_achieved_pct", "%")
    found["occupancy, theoretical"] = _occupancy(profile)
    found["tail, idle share of the last wave"] = _tail(profile)
    plain("tensor pipe active", "tensor_active_pct", "%")
    found.update(_paths(profile.opcodes, "opcodes"))
    spills = [total("local_loads"), total("local_stores")]
    found["local-memory instructions"] = Quantity(
        None if None in spills else sum(s or 0.0 for s in spills), missing="not counted"
    )
    stalls = profile.stalls
    samples = sum(stalls.values())
    if samples:
        top = [(reason, count / samples) for reason, count in stalls.items() if reason != "selected"][:3]
        shares = ", ".join(f"{reason} {share:.0%}" for reason, share in top)
        found["most frequent stall"] = Quantity(top[0][0] if top else "none", "", f"{shares} of samples" if top else "")
    return found


def _dram(profile: Profile, record: Record) -> Quantity:
    moved = profile.dram_bytes
    if moved is None or not record.bytes:
        return Quantity(
            None, missing="DRAM bytes not counted" if moved is None else "the operator moves no compulsory bytes"
        )
    note = (
        f"{moved / 1e6:,.1f} MB" if profile.left_bytes is not None else f"{moved / 1e6:,.1f} MB, less what stayed in L2"
    )
    return Quantity(moved / record.bytes, "", note)


def _sectors(profile: Profile, kind: str, inspection: Mapping[str, Any] | None) -> Quantity:
    """With the widest access beside it: 32 threads that each access 128 bits legitimately touch 16 sectors."""
    requests, sectors = profile.total(f"global_{kind}_requests"), profile.total(f"global_{kind}_sectors")
    if requests is None or sectors is None:
        return Quantity(None, missing="not counted")
    if not requests:
        return Quantity("no plain access")
    note = ""
    bits = _widest(inspection, "LDG" if kind == "load" else "STG")
    if bits:
        note = f"{bits}-bit accesses: {bits // 8 * _WARP_THREADS // _SECTOR_BYTES} if adjacent"
    return Quantity(sectors / requests, "", note)


def _widest(inspection: Mapping[str, Any] | None, opcode: str) -> int | None:
    widths = [
        int(name.rpartition(".")[2])
        for kernel in (inspection or {}).get("kernels", ())
        for name in kernel["widths"]
        if base_opcode(name) == opcode
    ]
    return max(widths, default=None)


def _conflicts(profile: Profile) -> Quantity:
    conflicts, wavefronts = profile.total("bank_conflicts"), profile.total("shared_wavefronts")
    if conflicts is None or wavefronts is None:
        return Quantity(None, missing="not counted")
    if not wavefronts:
        return Quantity("no shared memory")
    efficiency = profile.total("branch_efficiency_pct")
    confounded = efficiency is not None and efficiency < _CONFOUNDED_BELOW_PCT
    note = conflict_class(conflicts / wavefronts)
    return Quantity(
        conflicts / wavefronts, "", f"{note}; confounded, branch efficiency {efficiency:.1f} %" if confounded else note
    )


def _occupancy(profile: Profile) -> Quantity:
    value = profile.total("occupancy_theoretical_pct")
    limits = {name: profile.total(metric) for metric, name in _LIMITERS.items()}
    known = {name: limit for name, limit in limits.items() if limit is not None}
    least = min(known.values(), default=math.inf)
    limiter = " and ".join(name for name, limit in known.items() if limit == least)
    return Quantity(value, "%", f"limited by {limiter}" if value is not None and limiter else "", missing="not counted")


def _tail(profile: Profile) -> Quantity:
    waves = profile.total("waves")
    if waves is None or waves <= 0:
        return Quantity(None, missing="waves not counted")
    return Quantity(1 - waves / math.ceil(waves), "", f"{waves:.2f} waves")


def _paths(opcodes: Mapping[str, int], source: str) -> dict[str, Quantity]:
    """Which matrix instructions there are, how operands arrive, where atomics work, and shared stores per warp-group product."""
    families: Counter[str] = Counter()
    bases: Counter[str] = Counter()
    atomics = set()
    for opcode, count in opcodes.items():
        family, base = family_of(opcode), base_opcode(opcode)
        families[family] += count
        bases[base] += count
        if family == "atomics" and count:
            atomics.add("shared memory" if base.endswith("S") else "global memory")
    static = source == "code"
    if not opcodes:
        return {"matrix path": Quantity(None, missing="opcodes not counted")}
    matrix = [family for family in ("tcgen05", "WGMMA", "legacy matrix") if families[family]]
    operands = [name for name, there in (
        ("TMA", bases["UTMALDG"] + bases["UBLKCP"]), ("async copies", bases["LDGSTS"]), ("plain loads", bases["LDG"] + bases["LD"]),
    ) if there]  # fmt: skip
    found = {
        "matrix path": Quantity(" and ".join(matrix) or "none", static=static),
        "operand path": Quantity(" and ".join(operands) or "none", static=static),
        "atomics": Quantity(" and ".join(sorted(atomics, reverse=True)) or "none", static=static),
    }
    if families["WGMMA"]:
        stores = bases["STS"] + bases["STSM"]
        found["shared stores per WGMMA"] = Quantity(stores / families["WGMMA"], static=static)
    return found


def _static(kernels: list[Mapping[str, Any]]) -> dict[str, Quantity]:
    """By the kernel with the most instructions where there are several."""
    kernel = max(kernels, key=lambda k: k["instructions"])
    named = f"of {kernel['name']}" if len(kernels) > 1 else ""
    shared = kernel["static_shared_bytes"] + (kernel["dynamic_shared_bytes"] or 0)
    spills = sum(k["families"].get("local memory", 0) for k in kernels)
    widths = {
        name: n for k in kernels for name, n in k["widths"].items() if name.startswith(("LDG", "STG", "LDS", "STS"))
    }
    found = {
        "kernels in the code": Quantity(len(kernels), static=True),
        "registers per thread": Quantity(kernel["registers"], "", named, static=True),
        "threads per block": Quantity(kernel["threads"], "", named, static=True),
        "shared memory per block": Quantity(shared, "bytes", named, static=True),
        "instructions in the code": Quantity(sum(k["instructions"] for k in kernels), static=True),
        "local-memory instructions in the code": Quantity(spills, static=True),
        "access widths": Quantity(", ".join(sorted(widths)) or "none", static=True),
    }
    opcodes: Counter[str] = Counter()
    for each in kernels:
        opcodes.update(each["opcodes"])
    return {**found, **{f"{name} (code)": value for name, value in _paths(opcodes, "code").items()}}
