"""Combining split-KV partial outputs in Triton: a program owns a few columns of one head and all its splits.

The largest input has 2.6 MB, so latency decides: D is cut into chunks to have more programs than the 16 heads, and the loads
of PARTS splits per thread are under way at once, which covers the whole grid in one pass. Longer inputs continue with a
running maximum.

Every thread owns four columns of some splits, with a maximum and sums of its own. They meet once, at the end: within a warp
first, which takes no barrier, and then all warps in one reduction of maxima and sums together.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel

LOG2_E = tl.constexpr(1.4426950408889634)
MOST_PARTS = 8  # that a thread has under way at once
LEAST = tl.constexpr(-3e38)  # below every weight's logarithm, but finite: no -inf - -inf


@triton.jit
def merge(maximum, total, value, other_maximum, other_total, other_value):
    """Two sets of splits -> one: the largest logarithm of a weight, and sums of weights and weighted values below it."""
    larger = tl.maximum(maximum, other_maximum)
    shrink, other_shrink = tl.exp2(maximum - larger), tl.exp2(other_maximum - larger)
    return larger, total * shrink + other_total * other_shrink, value * shrink + other_value * other_shrink


@triton.jit
def load_parts(lse_ptr, mid_ptr, split, columns, splits, D, PARTS: tl.constexpr, ROWS: tl.constexpr):
    """PARTS elements of lse and quads of mid from `split` on, ROWS splits apart."""
    weights, tiles = (), ()
    for part in tl.static_range(PARTS):
        # Masked by the allocation, so that these loads need not wait for the sequence's length.
        held = split + part * ROWS < splits
        weight = tl.load(lse_ptr + split + part * ROWS, mask=held, other=0.0)
        mask = held[:, None] & (columns < D)
        tile = tl.load(mid_ptr + (split + part * ROWS)[:, None] * D + columns, mask=mask, other=0.0)
        weights = weights + (weight,)  # noqa: RUF005 - Triton knows no unpacking
        tiles = tiles + (tile,)  # noqa: RUF005
    return weights, tiles


@triton.jit
def combine_kernel(
    mid_ptr, lse_ptr, seqlen_ptr, o_ptr, heads, splits, D, block_seq,
    PARTS: tl.constexpr, ROWS: tl.constexpr, QUADS: tl.constexpr,
):  # fmt: skip
    """mid [B·H, splits, D], lse [B·H, splits], seqlen [B] int32, o [B·H, D]; 4·QUADS columns per program.

    A lane is a thread: one of QUADS quads of columns in one of ROWS splits that are loaded side by side.
    """
    head = (tl.program_id(2) * heads + tl.program_id(1)).to(tl.int64)
    length = tl.load(seqlen_ptr + tl.program_id(2))
    lane = tl.arange(0, ROWS * QUADS)
    columns = (tl.program_id(0) * QUADS + lane % QUADS)[:, None] * 4 + tl.arange(0, 4)[None, :]
    lse_ptr += head * splits
    mid_ptr += head * splits * D
    maximum = tl.full([ROWS * QUADS], LEAST, tl.float32)
    total = tl.zeros([ROWS * QUADS], tl.float32)
    value = tl.zeros([ROWS * QUADS, 4], tl.float32)
    # Ahead of the loop, although it is run once as a rule: within it, the assembler would save registers and load behind the
    # exponentials, one latency after the other.
    weights, tiles = load_parts(lse_ptr, mid_ptr, lane // QUADS, columns, splits, D, PARTS, ROWS)
    for start in range(0, splits, PARTS * ROWS):
        larger = maximum
        logarithms = ()
        for part in tl.static_range(PARTS):
            split = start + part * ROWS + lane // QUADS
            used = (split < splits) & (split * block_seq < length)  # by the split's first token, without a division
            logarithm = tl.where(used, weights[part] * LOG2_E, float("-inf"))
            logarithms = logarithms + (logarithm,)  # noqa: RUF005
            larger = tl.maximum(larger, logarithm)
        shrink = tl.exp2(maximum - larger)
        total *= shrink
        value *= shrink[:, None]
        maximum = larger
        for part in tl.static_range(PARTS):
            weight = tl.exp2(logarithms[part] - maximum)
            total += weight
            # Unused splits may hold anything, NaN too.
            value += tl.where(weight[:, None] > 0, weight[:, None] * tiles[part], 0.0)
        later = start + PARTS * ROWS + lane // QUADS
        weights, tiles = load_parts(lse_ptr, mid_ptr, later, columns, splits, D, PARTS, ROWS)

    # A warp holds 32 / QUADS splits side by side.
    SIDE: tl.constexpr = 32 // QUADS
    WARPS: tl.constexpr = ROWS // SIDE
    maximum = maximum.reshape(WARPS, SIDE, QUADS)
    larger = tl.max(maximum, axis=1)
    shrink = tl.exp2(maximum - larger[:, None, :])
    total = tl.sum(total.reshape(WARPS, SIDE, QUADS) * shrink, axis=1)
    value = tl.sum(value.reshape(WARPS, SIDE, QUADS, 4) * shrink[:, :, :, None], axis=1)
    larger = tl.broadcast_to(larger[:, :, None], WARPS, QUADS, 4)
    total = tl.broadcast_to(total[:, :, None], WARPS, QUADS, 4)
    _, total, value = tl.reduce((larger, total, value), 0, merge)
    columns = (tl.program_id(0) * QUADS + tl.arange(0, QUADS))[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(o_ptr + head * D + columns, value / total, mask=columns < D)


def run(
    mid_o: torch.Tensor, mid_lse: torch.Tensor, b_seqlen: torch.Tensor, block_seq: int, *, PARTS: int, QUADS: int,
    num_warps: int,
) -> torch.Tensor:  # fmt: skip
    """Return o [B, H, D]; mid_o [B, H, splits, D], mid_lse [B, H, splits], b_seqlen [B] int32."""
    B, H, splits, D = mid_o.shape
    o = torch.empty([B, H, D], dtype=mid_o.dtype, device=mid_o.device)
    combine_kernel[(triton.cdiv(D, 4 * QUADS), H, B)](
        mid_o, mid_lse, b_seqlen, o, H, splits, D, block_seq,
        PARTS=PARTS, ROWS=32 * num_warps // QUADS, QUADS=QUADS, num_warps=num_warps,
    )  # fmt: skip
    return o


def _config(case: Case, quads: int, warps: int) -> Config:
    """Parts that cover the case's splits, if a thread's registers allow."""
    splits = triton.cdiv(case["seq_len"], case["block_seq"])
    return {"PARTS": min(MOST_PARTS, triton.cdiv(splits, 32 * warps // quads)), "QUADS": quads, "num_warps": warps}


def default(case: Case) -> Config:
    # Four quads are 64 bytes of every split's row, two sectors: 128 programs in the benchmark's grid. As few warps as hold the
    # splits: each starts later, and meets more others at the end, than a further part of the same thread comes.
    splits = triton.cdiv(case["seq_len"], case["block_seq"])
    if splits <= 16:
        return _config(case, 8, 1)
    return _config(case, 4, 1 if splits <= 48 else 2 if splits <= 64 else 4 if splits <= 240 else 8)


def space(case: Case) -> list[Config]:
    return [_config(case, quads, warps) for quads in (2, 4, 8) for warps in (1, 2, 4, 8, 16)]


KERNEL = Kernel(run=run, default=default, space=space)
