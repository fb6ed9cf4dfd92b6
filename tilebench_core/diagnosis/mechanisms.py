"""From the quantities of two sides to hypotheses: what may explain a gap, and what speaks against it.

A rule looks at numbers only. It gives no verdict: its text is a hypothesis, with the observation that it rests on kept
apart, and an experiment that could refute it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilebench_core.diagnosis.derived import Quantity

__all__ = ["Hypothesis", "hypotheses"]

Quantities = Mapping[str, Quantity]


@dataclass(frozen=True)
class Hypothesis:
    """One possible mechanism. `weight` orders them: how far apart the sides are, in the unit of a factor."""

    title: str
    observation: str
    text: str
    against: str
    experiment: str
    weight: float


def hypotheses(slow: Quantities, fast: Quantities) -> list[Hypothesis]:
    """All that the quantities suggest, the one with the widest difference first."""
    found = [hypothesis for rule in _RULES if (hypothesis := rule(slow, fast)) is not None]
    return sorted(found, key=lambda hypothesis: -hypothesis.weight)


def _numbers(slow: Quantities, fast: Quantities, name: str) -> tuple[float, float] | None:
    a, b = slow.get(name), fast.get(name)
    if a is None or b is None or not isinstance(a.value, (int, float)) or not isinstance(b.value, (int, float)):
        return None
    return float(a.value), float(b.value)


def _words(slow: Quantities, fast: Quantities, name: str) -> tuple[str, str] | None:
    """Differing words, counted ones before those of the code."""
    for key in (name, f"{name} (code)"):
        a, b = slow.get(key), fast.get(key)
        if a is not None and b is not None and isinstance(a.value, str) and isinstance(b.value, str):
            return (a.value, b.value) if a.value != b.value else None
    return None


def _traffic(slow: Quantities, fast: Quantities) -> Hypothesis | None:
    pair = _numbers(slow, fast, "DRAM bytes over compulsory")
    if pair is None or pair[0] < 1.15 * pair[1]:
        return None
    return Hypothesis(
        "more DRAM traffic", f"The slower side moves {pair[0]:.2f} times the compulsory bytes, the faster {pair[1]:.2f} times.",
        "Data that one side reads once, the other reads again: tiles that overlap, a second pass, or lines that leave L2 early.",
        "If the slower side's DRAM throughput is far below its peak, the bytes are not what it waits for.",
        "a larger tile, or a configuration that keeps the row on chip; the bytes must fall with the time", pair[0] / pair[1],
    )  # fmt: skip


def _instruction_count(slow: Quantities, fast: Quantities) -> Hypothesis | None:
    for name in ("instructions", "instructions in the code"):
        pair = _numbers(slow, fast, name)
        if pair is not None:
            break
    if pair is None or not pair[1] or pair[0] < 1.3 * pair[1]:
        return None
    executed = "executes" if name == "instructions" else "holds in its code (static)"
    return Hypothesis(
        "more instructions", f"The slower side {executed} {pair[0] / pair[1]:.2f} times the instructions of the faster.",
        "Address arithmetic, predicates or conversions that the other compiler removes.",
        "If issue slots are mostly idle on the slower side, instructions are not what limits it."
        + (" Static counts say nothing of how often a loop runs." if name != "instructions" else ""),
        "static instead of dynamic extents, or a tile that divides the case; the instruction ratio must move",
        (pair[0] / pair[1]) ** 0.5,
    )  # fmt: skip


def _matrix(slow: Quantities, fast: Quantities) -> Hypothesis | None:
    pair = _words(slow, fast, "matrix path")
    if pair is None:
        return None
    return Hypothesis(
        "another matrix path", f"The slower side multiplies by {pair[0]}, the faster by {pair[1]}.",
        "The matrix instructions of one path have a fraction of the other's rate.",
        "If the tensor pipe of the slower side is busy for a small part of the time, its operands are late, not its products.",
        "a tile or warp count for which the compiler chooses the other instruction", 3.0 if "none" in pair else 2.0,
    )  # fmt: skip


def _operands(slow: Quantities, fast: Quantities) -> Hypothesis | None:
    pair = _words(slow, fast, "operand path")
    if pair is None:
        return None
    return Hypothesis(
        "another operand path", f"Operands arrive by {pair[0]} on the slower side, by {pair[1]} on the faster.",
        "Bulk copies leave registers and issue slots to the arithmetic, plain loads take both.",
        "Plain loads of full width reach the same bandwidth in streaming kernels.",
        "the switch that allows or forbids TMA, where the backend has one", 1.4,
    )  # fmt: skip


def _atomics(slow: Quantities, fast: Quantities) -> Hypothesis | None:
    pair = _words(slow, fast, "atomics")
    if pair is None or pair[0] != "global memory":
        return None
    return Hypothesis(
        "atomics in global memory", f"Atomics work on {pair[0]} alone on the slower side, on {pair[1]} on the faster.",
        "An atomic in global memory is served by the L2 cache, one in shared memory by the multiprocessor itself.",
        "If few of the instructions that are executed are atomics, they are not what the slower side waits for.",
        "a configuration that counts on chip first, where there is one", 3.0,
    )  # fmt: skip


def _relayout(slow: Quantities, fast: Quantities) -> Hypothesis | None:
    key = "shared stores per WGMMA"
    pair = _numbers(slow, fast, key) or _numbers(slow, fast, f"{key} (code)")
    if pair is None or pair[0] < pair[1] + 0.5:
        return None
    return Hypothesis(
        "operands laid out again", f"{pair[0]:.1f} shared stores per WGMMA on the slower side, {pair[1]:.1f} on the faster.",
        "Operands pass through registers to be transposed or converted before the product.",
        "Stores of the epilogue count too; with few products they dominate.",
        "a transposed operand, or an operand that is in the order the instruction takes", 1 + (pair[0] - pair[1]) / 4,
    )  # fmt: skip


def _bank_conflicts(slow: Quantities, fast: Quantities) -> Hypothesis | None:
    pair = _numbers(slow, fast, "bank-conflict share")
    if pair is None or pair[0] < 0.1 or pair[0] < 2 * pair[1]:
        return None
    note = slow["bank-conflict share"].note
    return Hypothesis(
        "bank conflicts", f"{pair[0]:.0%} of the slower side's shared-memory wavefronts are conflicts ({note}), {pair[1]:.0%} of the"
        " faster's.", "A layout in shared memory that makes threads of a warp wait for each other.",
        "Conflicts cost nothing while another pipe is the bottleneck." + (
            " The share is confounded by divergent branches." if "confounded" in note else ""),
        "another tile shape or swizzle; the share must fall with the time", 1 + pair[0],
    )  # fmt: skip


def _occupancy(slow: Quantities, fast: Quantities) -> Hypothesis | None:
    pair = _numbers(slow, fast, "occupancy, achieved")
    if pair is None or pair[1] - pair[0] < 15:
        return None
    limit = slow["occupancy, theoretical"].note if "occupancy, theoretical" in slow else ""
    return Hypothesis(
        "fewer warps in flight", f"Achieved occupancy is {pair[0]:.0f} % on the slower side{f' ({limit})' if limit else ''},"
        f" {pair[1]:.0f} % on the faster.", "Too few warps to hide the latency of memory.",
        "Kernels with asynchronous copies or wide tiles need few warps.",
        "fewer stages, a smaller tile or fewer registers; occupancy must rise with the speed", (pair[1] / max(pair[0], 1)) ** 0.5,
    )  # fmt: skip


def _tail(slow: Quantities, fast: Quantities) -> Hypothesis | None:
    name = "tail, idle share of the last wave"
    pair = _numbers(slow, fast, name)
    waves = slow[name].note if pair is not None else ""
    if pair is None or pair[0] < pair[1] + 0.2 or float(waves.split()[0]) > 4:
        return None
    return Hypothesis(
        "a tail", f"The slower side's last wave is {pair[0]:.0%} empty ({waves}), the faster's {pair[1]:.0%}.",
        "Multiprocessors idle while the last blocks finish.", "Blocks of unequal length fill the last wave differently.",
        "a smaller tile, or a persistent grid", 1 + pair[0] / 2,
    )  # fmt: skip


def _spills(slow: Quantities, fast: Quantities) -> Hypothesis | None:
    pair = _numbers(slow, fast, "local-memory instructions") or _numbers(
        slow, fast, "local-memory instructions in the code"
    )
    if pair is None or pair[0] <= 4 * pair[1] or not pair[0]:
        return None
    return Hypothesis(
        "spills", f"{pair[0]:,.0f} local-memory instructions on the slower side, {pair[1]:,.0f} on the faster.",
        "Registers do not hold the tile, and their overflow travels through L1.",
        "Spills outside the main loop cost little.", "a smaller tile or more warps; they must vanish with the time", 1.6,
    )  # fmt: skip


def _launches(slow: Quantities, fast: Quantities) -> Hypothesis | None:
    pair = _numbers(slow, fast, "launches") or _numbers(slow, fast, "kernels in the code")
    if pair is None or pair[0] <= pair[1]:
        return None
    share = slow.get("launch-bound share")
    weight = 1 + (float(share.value) if share is not None and isinstance(share.value, (int, float)) else 0.1) * pair[0]
    return Hypothesis(
        "more kernels in a call", f"The slower side launches {pair[0]:.0f} kernels, the faster {pair[1]:.0f}.",
        "Each kernel has a floor, and intermediate results travel through memory.",
        "At the largest case the floor is a small part of the time.", "a configuration with one pass", weight,
    )  # fmt: skip


_RULES: tuple[Callable[[Quantities, Quantities], Hypothesis | None], ...] = (
    _traffic, _instruction_count, _matrix, _operands, _atomics, _relayout, _bank_conflicts, _occupancy, _tail, _spills, _launches,
)  # fmt: skip
