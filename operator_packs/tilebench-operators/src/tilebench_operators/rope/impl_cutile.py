"""Rotary position embedding in cuTile: one block rotates a group of heads at one position.

The row of cos and sin is read once and shared by the group's heads, by default all of them. Both halves of a head are
loaded before either is written, to a new tensor: q is read once, and nothing else is moved. Tiles that lie inside have no
bounds check: a checked load of 16-bit elements is a branch, and every load waits for the one before it.
"""

import functools

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._cutile_rows import load, store

MAX_HEADS = 32  # a group of more would need too many registers
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def rope_kernel(
    q, cos, sin, y, HEADS: ct.Constant[int], BLOCK: ct.Constant[int], INSIDE: ct.Constant[bool]
):  # fmt: skip
    """One block, HEADS heads of one token: q, y [B·S, H, 2, half]; cos, sin [S, half]; BLOCK >= half.

    INSIDE says that BLOCK is half and HEADS divides H.
    """
    token, group = ct.bid(0), ct.bid(1)
    position = token % cos.shape[0]
    shape = (1, HEADS, 1, BLOCK)
    q1 = load(q, (token, group, 0, 0), shape, INSIDE, ZERO)
    q2 = load(q, (token, group, 1, 0), shape, INSIDE, ZERO)
    c = load(cos, (position, 0), (1, BLOCK), INSIDE, ZERO)
    s = load(sin, (position, 0), (1, BLOCK), INSIDE, ZERO)
    q1, q2 = q1.astype(ct.float32), q2.astype(ct.float32)
    c = c.astype(ct.float32).reshape((1, 1, 1, BLOCK))
    s = s.astype(ct.float32).reshape((1, 1, 1, BLOCK))
    store(y, (token, group, 0, 0), (q1 * c - q2 * s).astype(y.dtype), INSIDE)
    store(y, (token, group, 1, 0), (q2 * c + q1 * s).astype(y.dtype), INSIDE)


@functools.cache
def hinted(warps: int) -> ct.kernel:
    """`rope_kernel` for blocks of `warps` warps. A hinted kernel has compiled code of its own."""
    return rope_kernel.replace_hints(num_worker_warps=warps)


def run(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, HEADS: int, WARPS: int) -> torch.Tensor:
    """Return y [B, S, H, d] of q [B, S, H, d], cos [S, d/2] and sin [S, d/2], all of one dtype."""
    B, S, H, d = q.shape
    y = torch.empty_like(q)
    halves = (B * S, H, 2, d // 2)
    BLOCK = 1 << (d // 2 - 1).bit_length()
    grid = (B * S, ct.cdiv(H, HEADS))
    inside = d // 2 == BLOCK and H % HEADS == 0
    arguments = (q.view(halves), cos, sin, y.view(halves), HEADS, BLOCK, inside)
    ct.launch(torch.cuda.current_stream(), grid, hinted(WARPS), arguments)
    return y


def default(case: Case) -> Config:
    # 32 heads of 128: four 16-byte vectors of q per thread with 128 threads in fp16, with 256 in fp32.
    return {"HEADS": min(MAX_HEADS, 1 << (case["H"] - 1).bit_length()), "WARPS": 2 * case.dtype_size}


def space(case: Case) -> list[Config]:
    return [{"HEADS": heads, "WARPS": warps} for heads in (4, 8, 16, 32) for warps in (4, 8)]


KERNEL = Kernel(run=run, default=default, space=space)
