"""Combining split-KV partial outputs in cuTile: a block owns a few columns of one head and all its splits.

The largest input has 2.6 MB, so latency decides: D is cut into chunks to have more blocks than the 16 heads, and up to
SPLITS splits are loaded at once, with no loop-carried chain, which covers the whole grid with SPLITS >= 320 in one
pass. Longer inputs continue with a running maximum.
"""

import functools
import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

LOG2_E = math.log2(math.e)
ZERO = ct.PaddingMode.ZERO
NEG_INF = ct.PaddingMode.NEG_INF


@ct.kernel
def combine_kernel(mid, lse, seqlen, o, heads, block_seq, SPLITS: ct.Constant[int], CHUNK: ct.Constant[int]):
    """mid [B·H, splits, D], lse [B·H, splits], seqlen [B] int32, o [B·H, D]; CHUNK columns per block."""
    head, chunk = ct.bid(0), ct.bid(1)
    used = ct.cdiv(ct.load(seqlen, (head // heads,), ()), block_seq)  # at least 1
    maximum = ct.full((1, 1), -math.inf, ct.float32)
    total = ct.zeros((1, 1), ct.float32)
    accumulator = ct.zeros((1, CHUNK), ct.float32)
    # The loop's bounds and the loads are those of the allocation, so that they need not wait for the sequence's length.
    for part in range(ct.cdiv(lse.shape[1], SPLITS)):
        weight = ct.load(lse, (head, part), (1, SPLITS), padding_mode=NEG_INF, allow_tma=False).reshape((SPLITS, 1))
        tile = ct.load(mid, (head, part, chunk), (1, SPLITS, CHUNK), padding_mode=ZERO, allow_tma=False)
        held = part * SPLITS + ct.arange(SPLITS, dtype=ct.int32)[:, None] < used
        weight = ct.where(held, weight * LOG2_E, -math.inf)
        tile = ct.where(held, tile.reshape((SPLITS, CHUNK)), 0.0)  # unused splits may hold anything, NaN too
        larger = ct.maximum(maximum, ct.max(weight, 0, keepdims=True))
        shrink, weight = ct.exp2(maximum - larger), ct.exp2(weight - larger)
        total = total * shrink + ct.sum(weight, 0, keepdims=True)
        accumulator = accumulator * shrink + ct.sum(weight * tile, 0, keepdims=True)
        maximum = larger
    ct.store(o, (head, chunk), accumulator / total, allow_tma=False)


@functools.cache
def hinted(warps: int) -> ct.kernel:
    """`combine_kernel` for blocks of `warps` warps. A hinted kernel has compiled code of its own."""
    return combine_kernel.replace_hints(num_worker_warps=warps)


def run(
    mid_o: torch.Tensor, mid_lse: torch.Tensor, b_seqlen: torch.Tensor, block_seq: int, *, SPLITS: int, CHUNK: int,
    WARPS: int,
) -> torch.Tensor:  # fmt: skip
    """Return o [B, H, D]; mid_o [B, H, splits, D], mid_lse [B, H, splits], b_seqlen [B] int32."""
    B, H, splits, D = mid_o.shape
    o = torch.empty([B, H, D], dtype=mid_o.dtype, device=mid_o.device)
    arrays = (mid_o.view(B * H, splits, D), mid_lse.view(B * H, splits), b_seqlen, o.view(B * H, D))
    grid = (B * H, ct.cdiv(D, CHUNK))
    ct.launch(torch.cuda.current_stream(), grid, hinted(WARPS), (*arrays, H, block_seq, SPLITS, CHUNK))
    return o


def _one_pass(case: Case) -> int:
    splits = -(-case["seq_len"] // case["block_seq"])
    return min(512, max(16, 1 << (splits - 1).bit_length()))


def default(case: Case) -> Config:
    # 16 columns are 64 bytes of every split's row, two sectors: 128 blocks in the benchmark's grid.
    return {"SPLITS": _one_pass(case), "CHUNK": 16, "WARPS": 8 if _one_pass(case) > 64 else 4}


def space(case: Case) -> list[Config]:
    return [
        {"SPLITS": splits, "CHUNK": chunk, "WARPS": warps}
        for splits in sorted({_one_pass(case), min(128, _one_pass(case))})
        for chunk in (8, 16, 32, 64)
        for warps in (4, 8)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
