"""Rotary position embedding in Triton: one program rotates a group of heads at one position.

The row of cos and sin is read once and shared by the group's heads, by default all of them. Both halves of a head are
loaded before either is written, to a new tensor: q is read once, and nothing else is moved.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel

MAX_HEADS = 32  # a group of more would need too many registers


@triton.jit
def rope_kernel(q_ptr, cos_ptr, sin_ptr, y_ptr, S, H, half, HEADS: tl.constexpr, BLOCK: tl.constexpr):
    """One program, HEADS heads of one token: q, y [B·S, H, 2, half]; cos, sin [S, half]; BLOCK >= half."""
    token = tl.program_id(0)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    lane = tl.arange(0, BLOCK)
    position = token % S
    cos = tl.load(cos_ptr + position * half + lane, mask=lane < half).to(tl.float32)[None, :]
    sin = tl.load(sin_ptr + position * half + lane, mask=lane < half).to(tl.float32)[None, :]

    first = (token.to(tl.int64) * H + head[:, None]) * 2 * half + lane[None, :]  # [HEADS, BLOCK]
    second = first + half
    mask = (head < H)[:, None] & (lane < half)[None, :]
    q1 = tl.load(q_ptr + first, mask=mask).to(tl.float32)
    q2 = tl.load(q_ptr + second, mask=mask).to(tl.float32)
    tl.store(y_ptr + first, (q1 * cos - q2 * sin).to(y_ptr.dtype.element_ty), mask=mask)
    tl.store(y_ptr + second, (q2 * cos + q1 * sin).to(y_ptr.dtype.element_ty), mask=mask)


def run(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, HEADS: int, num_warps: int) -> torch.Tensor:
    """Return y [B, S, H, d] of q [B, S, H, d], cos [S, d/2] and sin [S, d/2], all of one dtype."""
    B, S, H, d = q.shape
    y = torch.empty_like(q)
    grid = (B * S, triton.cdiv(H, HEADS))
    BLOCK = triton.next_power_of_2(d // 2)
    rope_kernel[grid](q, cos, sin, y, S, H, d // 2, HEADS=HEADS, BLOCK=BLOCK, num_warps=num_warps)
    return y


def default(case: Case) -> Config:
    # 32 heads of 128: four 16-byte vectors per thread with 128 threads in fp16, with 256 in fp32.
    return {"HEADS": min(MAX_HEADS, triton.next_power_of_2(case["H"])), "num_warps": 2 * case.dtype_size}


def space(case: Case) -> list[Config]:
    return [{"HEADS": heads, "num_warps": warps} for heads in (4, 8, 16, 32) for warps in (1, 2, 4, 8)]


KERNEL = Kernel(run=run, default=default, space=space)
