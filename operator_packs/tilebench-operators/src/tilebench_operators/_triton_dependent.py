"""Dependent launches in Triton: a kernel starts while the one before it still runs, and waits where it needs its results.

CUDA calls this programmatic dependent launch. What a kernel does before it waits (its start, its indices, what it loads of
the operator's own inputs) then costs nothing where launches follow one another in a few microseconds. The first launch of
an operator is an ordinary one: inputs come from whatever ran before. Hopper (compute capability 9.0) and newer; on older
GPUs, and in the interpreter, launches wait for one another as a whole and all of this does nothing.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda
from triton.language.target_info import cuda_capability_geq, current_target

__all__ = ["dependent", "prefetch", "start_next", "wait_for_previous"]

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


def dependent() -> dict[str, bool]:
    """The options of a launch that may start before the launch in front of it has ended; its kernel must wait for it."""
    if triton.knobs.runtime.interpret:
        return {}
    target = current_target()
    return {"launch_pdl": True} if target.backend == "cuda" and target.arch >= 90 else {}


@triton.jit
def wait_for_previous():
    """Return once the launch before this one has ended and its stores are visible; at once in an ordinary launch.

    A kernel launched as `dependent()` calls it in every program, before it touches what earlier launches wrote.
    """
    if not INTERPRETED and cuda_capability_geq(9, 0):
        cuda.gdc_wait()


@triton.jit
def start_next():
    """Let the next launch start, if it is `dependent()`, once all programs of this one have come here."""
    if not INTERPRETED and cuda_capability_geq(9, 0):
        cuda.gdc_launch_dependents()


@triton.jit
def prefetch(pointers, mask):
    """Bring the cache lines (128 bytes) of `pointers` to the L2 cache where `mask` is true."""
    if not INTERPRETED and cuda_capability_geq(9, 0):
        tl.inline_asm_elementwise(
            "{ .reg .pred p; setp.ne.b32 p, $2, 0; @p prefetch.global.L2 [$1]; mov.b32 $0, 0; }",
            "=r,l,r", [pointers, mask.to(tl.int32)], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
