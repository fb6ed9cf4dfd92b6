"""Reversal of an array in Triton: 16-byte vectors are read in reverse order and flipped inside each thread.

Reading single elements backwards would leave 1- and 2-byte types with 1- and 2-byte accesses. Here a row of the tile is
one vector: its address decreases from row to row, but inside it runs forwards, so that it is one load.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def reverse_kernel(x_ptr, out_ptr, n, ROWS: tl.constexpr, VECTOR: tl.constexpr):
    """Write ROWS·VECTOR elements of out [n]."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, VECTOR)
    offsets = rows[:, None] * VECTOR + lanes[None, :]
    # The mirror image of row r is the row that starts at n - (r + 1)·VECTOR. Where n is no multiple of VECTOR, the
    # last row reaches below 0; those are the elements whose flipped place is beyond n.
    mirrored = n - (rows[:, None] + 1) * VECTOR + lanes[None, :]
    vectors = tl.load(x_ptr + mirrored, mask=mirrored >= 0)
    tl.store(out_ptr + offsets, tl.flip(vectors, 1), mask=offsets < n)


def run(x: torch.Tensor, *, BLOCK: int, num_warps: int) -> torch.Tensor:
    """Return x [n] in reverse order."""
    out = torch.empty_like(x)
    n, vector = x.numel(), 16 // x.element_size()
    reverse_kernel[(triton.cdiv(n, BLOCK),)](x, out, n, ROWS=BLOCK // vector, VECTOR=vector, num_warps=num_warps)
    return out


def default(case: Case) -> Config:
    return {"BLOCK": 4096 // case.dtype_size, "num_warps": 4}  # two vectors per thread


def space(case: Case) -> list[Config]:
    return [
        {"BLOCK": bytes_ // case.dtype_size, "num_warps": warps}
        for bytes_ in (2048, 4096, 8192, 16384)
        for warps in (2, 4, 8)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
