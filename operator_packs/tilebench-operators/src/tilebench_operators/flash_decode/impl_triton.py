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
def add_pairs(weight_a, sum_a, weight_b, sum_b):
    return weight_a + weight_b, sum_a + sum_b


@triton.jit
def combine_kernel(
    mid_ptr, lse_ptr, seqlen_ptr, o_ptr, splits, D, block_seq, SPLITS: tl.constexpr, CHUNK: tl.constexpr
):
    """mid [B, H, splits, D], lse [B, H, splits], seqlen [B] int32, o [B, H, D]; CHUNK columns per program.

    Neither an address nor a loop waits for the sequence's length: it arrives together with what it selects from.
    """
    batch, heads = tl.program_id(2), tl.num_programs(1)
    length = tl.load(seqlen_ptr + batch)
    head = batch.to(tl.int64) * heads + tl.program_id(1)
    columns = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    lanes = tl.arange(0, SPLITS)
    maximum = tl.full([], float("-inf"), tl.float32)
    total = tl.zeros([CHUNK], tl.float32)  # the same in all columns
    accumulator = tl.zeros([CHUNK], tl.float32)
    for start in range(0, splits, SPLITS):
        rows = start + lanes
        held = rows < splits
        mask = held[:, None] & (columns < D)
        mid = tl.load(mid_ptr + (head * splits + rows[:, None]) * D + columns, mask=mask, other=0.0)
        lse = tl.load(lse_ptr + head * splits + rows, mask=held, other=float("-inf"))
        used = rows.to(tl.int64) * block_seq < length  # that split's first token; without a division
        lse = tl.where(used, lse, float("-inf"))
        mid = tl.where(used[:, None], mid, 0.0)  # unused splits may hold anything, NaN too
        larger = tl.maximum(maximum, tl.max(lse, axis=0))
        shrink, weights = tl.exp(maximum - larger), tl.broadcast_to(tl.exp(lse - larger)[:, None], [SPLITS, CHUNK])
        # Both sums in one exchange between the threads.
        weight, product = tl.reduce((weights, weights * mid), 0, add_pairs)
        total = total * shrink + weight
        accumulator = accumulator * shrink + product
        maximum = larger
    tl.store(o_ptr + head * D + columns, accumulator / total, mask=columns < D)


def run(
    mid_o: torch.Tensor, mid_lse: torch.Tensor, b_seqlen: torch.Tensor, block_seq: int, *, SPLITS: int, CHUNK: int,
    num_warps: int,
) -> torch.Tensor:  # fmt: skip
    """Return o [B, H, D]; mid_o [B, H, splits, D], mid_lse [B, H, splits], b_seqlen [B] int32."""
    B, H, splits, D = mid_o.shape
    o = torch.empty([B, H, D], dtype=mid_o.dtype, device=mid_o.device)
    combine_kernel[(triton.cdiv(D, CHUNK), H, B)](
        mid_o, mid_lse, b_seqlen, o, splits, D, block_seq, SPLITS=SPLITS, CHUNK=CHUNK, num_warps=num_warps
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
