"""Scatter of token rows in Triton: one launch moves both parts; a program moves a slice of the rows of a few tokens."""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def move_rows(source_ptr, target_ptr, tokens, targets, valid, width, columns):
    """Copy `columns` [C] of the rows `tokens` [R] of source [T, width] to the rows `targets` [R] of target."""
    mask = valid[:, None] & (columns < width)[None, :]
    values = tl.load(source_ptr + tokens[:, None] * width + columns[None, :], mask=mask)
    tl.store(target_ptr + targets[:, None] * width + columns[None, :], values, mask=mask)


@triton.jit
def scatter_kernel(
    nope_ptr, rope_ptr, dest_ptr, out_nope_ptr, out_rope_ptr, count, nope_width, rope_width,
    TOKENS: tl.constexpr, BLOCK: tl.constexpr, ROPE_BLOCK: tl.constexpr,
):  # fmt: skip
    """Program (i, j): BLOCK columns of TOKENS rows of nope [T, nope_width]; j = 0 also moves rope [T, rope_width]."""
    tokens = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    valid = tokens < count
    targets = tl.load(dest_ptr + tokens, mask=valid, other=0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    move_rows(nope_ptr, out_nope_ptr, tokens, targets, valid, nope_width, columns)
    if tl.program_id(1) == 0:
        move_rows(rope_ptr, out_rope_ptr, tokens, targets, valid, rope_width, tl.arange(0, ROPE_BLOCK))


def run(
    kv_nope: torch.Tensor, kv_rope: torch.Tensor, dest: torch.Tensor, *, TOKENS: int, BLOCK: int, num_warps: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return out_nope and out_rope, shaped as kv_nope [T, heads, head_dim] and kv_rope [T, 1, rope_dim]."""
    out_nope, out_rope = torch.empty_like(kv_nope), torch.empty_like(kv_rope)
    count = dest.numel()
    nope_width, rope_width = kv_nope[0].numel(), kv_rope[0].numel()
    scatter_kernel[(triton.cdiv(count, TOKENS), triton.cdiv(nope_width, BLOCK))](
        kv_nope, kv_rope, dest, out_nope, out_rope, count, nope_width, rope_width,
        TOKENS=TOKENS, BLOCK=BLOCK, ROPE_BLOCK=triton.next_power_of_2(rope_width), num_warps=num_warps,
    )  # fmt: skip
    return out_nope, out_rope


def default(case: Case) -> Config:
    # 512 divides the 1,536 elements of a row; 8 KB per program are four 16-byte loads of 128 threads.
    return {"TOKENS": 16 // case.dtype_size, "BLOCK": 512, "num_warps": 4}


def space(case: Case) -> list[Config]:
    return [
        {"TOKENS": tokens, "BLOCK": block, "num_warps": warps}
        for block in (256, 512)
        for tokens in (2, 4, 8, 16, 32)
        for warps in (2, 4, 8)
        if 2048 <= tokens * block * case.dtype_size <= 16384
    ]


KERNEL = Kernel(run=run, default=default, space=space)
