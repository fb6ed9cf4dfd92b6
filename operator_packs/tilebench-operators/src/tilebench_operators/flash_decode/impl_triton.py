"""Combining split-KV partial outputs in Triton: a program owns a few columns of one head and all its splits.

The largest input has 2.6 MB, so latency decides: D is cut into chunks to have more programs than the 16 heads, and up
to SPLITS splits are loaded at once, with no loop-carried chain, which covers the whole grid with SPLITS >= 320 in one
pass. Longer inputs continue with a running maximum.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def combine_kernel(
    mid_ptr, lse_ptr, seqlen_ptr, o_ptr, heads, splits, D, block_seq, SPLITS: tl.constexpr, CHUNK: tl.constexpr
):
    """mid [B·H, splits, D], lse [B·H, splits], seqlen [B] int32, o [B·H, D]; CHUNK columns per program."""
    head = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    used = tl.minimum(tl.cdiv(tl.load(seqlen_ptr + head // heads), block_seq), splits)
    lanes = tl.arange(0, SPLITS)
    maximum = tl.full([], float("-inf"), tl.float32)
    total = tl.zeros([], tl.float32)
    accumulator = tl.zeros([CHUNK], tl.float32)
    for start in range(0, used, SPLITS):
        rows = start + lanes
        # Masked by the allocation, not by `used`, so that these loads need not wait for the sequence's length.
        held = rows < splits
        lse = tl.load(lse_ptr + head * splits + rows, mask=held, other=float("-inf"))
        mask = held[:, None] & (columns < D)
        mid = tl.load(mid_ptr + (head * splits + rows[:, None]) * D + columns, mask=mask, other=0.0)
        lse = tl.where(rows < used, lse, float("-inf"))
        larger = tl.maximum(maximum, tl.max(lse, axis=0))
        shrink, weights = tl.exp(maximum - larger), tl.exp(lse - larger)
        total = total * shrink + tl.sum(weights, axis=0)
        accumulator = accumulator * shrink + tl.sum(weights[:, None] * mid, axis=0)
        maximum = larger
    tl.store(o_ptr + head * D + columns, accumulator / total, mask=columns < D)


def run(
    mid_o: torch.Tensor, mid_lse: torch.Tensor, b_seqlen: torch.Tensor, block_seq: int, *, SPLITS: int, CHUNK: int,
    num_warps: int,
) -> torch.Tensor:  # fmt: skip
    """Return o [B, H, D]; mid_o [B, H, splits, D], mid_lse [B, H, splits], b_seqlen [B] int32."""
    B, H, splits, D = mid_o.shape
    o = torch.empty([B, H, D], dtype=mid_o.dtype, device=mid_o.device)
    combine_kernel[(B * H, triton.cdiv(D, CHUNK))](
        mid_o, mid_lse, b_seqlen, o, H, splits, D, block_seq, SPLITS=SPLITS, CHUNK=CHUNK, num_warps=num_warps
    )
    return o


def _one_pass(case: Case) -> int:
    splits = triton.cdiv(case["seq_len"], case["block_seq"])
    return min(512, max(16, triton.next_power_of_2(splits)))


def default(case: Case) -> Config:
    # 16 columns are 64 bytes of every split's row, two sectors: 128 programs in the benchmark's grid.
    return {"SPLITS": _one_pass(case), "CHUNK": 16, "num_warps": 8 if _one_pass(case) > 64 else 4}


def space(case: Case) -> list[Config]:
    return [
        {"SPLITS": splits, "CHUNK": chunk, "num_warps": warps}
        for splits in sorted({_one_pass(case), min(128, _one_pass(case))})
        for chunk in (8, 16, 32, 64)
        for warps in (2, 4, 8, 16)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
