"""Interleaving in Triton: two blocks are read, interleaved in registers, written as one of twice the length."""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def interleave_kernel(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr, VECTOR: tl.constexpr):
    """Write 2·BLOCK elements of out [2n]."""
    start = tl.program_id(0) * BLOCK
    # A thread that reads VECTOR elements of each input owns 2·VECTOR neighbours of the result. The hint keeps VECTOR
    # at 8 bytes, so that the store is one 16-byte access and no element changes its thread.
    offsets = start + tl.max_contiguous(tl.arange(0, BLOCK), VECTOR)
    a = tl.load(a_ptr + offsets, mask=offsets < n)
    b = tl.load(b_ptr + offsets, mask=offsets < n)
    places = 2 * start.to(tl.int64) + tl.arange(0, 2 * BLOCK)
    tl.store(out_ptr + places, tl.interleave(a, b), mask=places < 2 * n)


def run(a: torch.Tensor, b: torch.Tensor, N: int, *, BLOCK: int, num_warps: int) -> torch.Tensor:
    """Return out [2N] from a [N] and b [N]."""
    out = torch.empty(2 * N, dtype=a.dtype, device=a.device)
    vector = 8 // a.element_size()
    interleave_kernel[(triton.cdiv(N, BLOCK),)](a, b, out, N, BLOCK=BLOCK, VECTOR=vector, num_warps=num_warps)
    return out


def default(case: Case) -> Config:
    return {"BLOCK": 2048 // case.dtype_size, "num_warps": 4}  # two 8-byte loads of each input per thread


def space(case: Case) -> list[Config]:
    return [
        {"BLOCK": bytes_ // case.dtype_size, "num_warps": warps}
        for bytes_ in (1024, 2048, 4096, 8192)
        for warps in (2, 4, 8)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
