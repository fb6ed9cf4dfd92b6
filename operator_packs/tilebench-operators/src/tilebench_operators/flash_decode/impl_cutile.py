"""Combining split-KV partial outputs in cuTile: a block owns a few columns of one head and all its splits.

The largest input has 2.6 MB, so latency decides: D is cut into chunks to have more blocks than the 16 heads, and all loads of
a block should be under way at once. A load with a bounds check becomes a branch, which the compiler moves behind the
reductions of what was loaded before. So `exact_kernel` takes tiles without checks, as many as fit into the splits and one more
that ends with the last split; it compiles once per number of tiles. Too few splits for a tile, or too many for the registers,
go through `combine_kernel`, with checks and a running maximum.
"""

import functools
import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

LOG2_E = math.log2(math.e)
LEAST = -3e38  # below every weight's logarithm, but finite: no -inf - -inf
ZERO = ct.PaddingMode.ZERO
NEG_INF = ct.PaddingMode.NEG_INF
APPROX = ct.RoundingMode.APPROX  # a division of two instructions
MOST_VALUES = 96  # of mid that a thread of `exact_kernel` keeps in registers


def merge(maximum, value, total, other_maximum, other_value, other_total):
    """Combine two maxima with the sums relative to them: one reduction instead of two, of which the second would wait."""
    larger = ct.maximum(maximum, other_maximum)
    shrink = ct.exp2(maximum - larger, flush_to_zero=True)
    other_shrink = ct.exp2(other_maximum - larger, flush_to_zero=True)
    return larger, value * shrink + other_value * other_shrink, total * shrink + other_total * other_shrink


@ct.kernel
def exact_kernel(
    mid, lse, mid_tail, lse_tail, seqlen, o, block_seq,
    SPLITS: ct.Constant[int], CHUNK: ct.Constant[int], PARTS: ct.Constant[int], TAIL: ct.Constant[bool],
):  # fmt: skip
    """As `combine_kernel`, for at least PARTS·SPLITS splits and D a multiple of CHUNK.

    mid_tail [B, H, SPLITS, D] and lse_tail [B, H, SPLITS] are the last SPLITS splits. With TAIL, those that the parts have
    left over are taken from there.
    """
    chunk, head, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    length = ct.load(seqlen, (batch,), (), check_bounds=False)
    tiles, weights = (), ()
    for part in ct.static_iter(range(PARTS + TAIL)):
        split = part * SPLITS + ct.arange(SPLITS, dtype=ct.int32)[:, None]
        if part < PARTS:
            where = (batch, head, part, chunk)
            tile = ct.load(mid, where, (1, 1, SPLITS, CHUNK), check_bounds=False, allow_tma=False)
            weight = ct.load(lse, where[:3], (1, 1, SPLITS), check_bounds=False, allow_tma=False)
            held = split * block_seq < length  # by the split's first token, without a division
        else:
            where = (batch, head, 0, chunk)
            tile = ct.load(mid_tail, where, (1, 1, SPLITS, CHUNK), check_bounds=False, allow_tma=False)
            weight = ct.load(lse_tail, where[:3], (1, 1, SPLITS), check_bounds=False, allow_tma=False)
            split = split - (part + 1) * SPLITS + mid.shape[2]
            held = (split >= PARTS * SPLITS) & (split * block_seq < length)
        weight = ct.where(held, weight.reshape((SPLITS, 1)) * LOG2_E, -math.inf)
        tiles += (tile.reshape((SPLITS, CHUNK)),)
        weights += (ct.broadcast_to(weight, (SPLITS, CHUNK)),)

    # Every lane has a maximum of its own at first, so that nothing here waits for other threads.
    maximum = ct.full((SPLITS, CHUNK), LEAST, ct.float32)
    for part in ct.static_iter(range(PARTS + TAIL)):
        maximum = ct.maximum(maximum, weights[part])
    total = ct.zeros((SPLITS, CHUNK), ct.float32)
    accumulator = ct.zeros((SPLITS, CHUNK), ct.float32)
    for part in ct.static_iter(range(PARTS + TAIL)):
        weight = ct.exp2(weights[part] - maximum, flush_to_zero=True)
        total = total + weight
        # unused splits may hold anything, NaN too
        accumulator = accumulator + ct.where(weight > 0.0, weight * tiles[part], 0.0)

    _, value, divisor = ct.reduce((maximum, accumulator, total), 0, merge, (LEAST, 0.0, 0.0))
    result = ct.truediv(value, divisor, rounding_mode=APPROX, flush_to_zero=True)
    ct.store(o, (batch, head, chunk), result.reshape((1, 1, CHUNK)), check_bounds=False, allow_tma=False)


@ct.kernel
def combine_kernel(mid, lse, seqlen, o, block_seq, SPLITS: ct.Constant[int], CHUNK: ct.Constant[int]):
    """mid [B, H, splits, D], lse [B, H, splits], seqlen [B] int32, o [B, H, D]; CHUNK columns per block."""
    chunk, head, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    length = ct.load(seqlen, (batch,), ())
    maximum = ct.full((1, 1), LEAST, ct.float32)
    total = ct.zeros((1, 1), ct.float32)
    accumulator = ct.zeros((1, CHUNK), ct.float32)
    # The loop's bounds and the loads are those of the allocation, so that they need not wait for the sequence's length.
    for part in range(ct.cdiv(mid.shape[2], SPLITS)):
        shape = (1, 1, SPLITS)
        weight = ct.load(lse, (batch, head, part), shape, padding_mode=NEG_INF, allow_tma=False).reshape((SPLITS, 1))
        shape = (1, 1, SPLITS, CHUNK)
        tile = ct.load(mid, (batch, head, part, chunk), shape, padding_mode=ZERO, allow_tma=False)
        held = (part * SPLITS + ct.arange(SPLITS, dtype=ct.int32)[:, None]) * block_seq < length
        weight = ct.where(held, weight * LOG2_E, -math.inf)
        tile = ct.where(held, tile.reshape((SPLITS, CHUNK)), 0.0)  # unused splits may hold anything, NaN too
        larger = ct.maximum(maximum, ct.max(weight, 0, keepdims=True))
        shrink, weight = ct.exp2(maximum - larger), ct.exp2(weight - larger)
        total = total * shrink + ct.sum(weight, 0, keepdims=True)
        accumulator = accumulator * shrink + ct.sum(weight * tile, 0, keepdims=True)
        maximum = larger
    ct.store(o, (batch, head, chunk), (accumulator / total).reshape((1, 1, CHUNK)), allow_tma=False)


@functools.cache
def hinted(kernel: ct.kernel, warps: int) -> ct.kernel:
    """`kernel` for blocks of `warps` warps. A hinted kernel has compiled code of its own."""
    return kernel.replace_hints(num_worker_warps=warps)


def run(
    mid_o: torch.Tensor, mid_lse: torch.Tensor, b_seqlen: torch.Tensor, block_seq: int, *, SPLITS: int, CHUNK: int,
    WARPS: int,
) -> torch.Tensor:  # fmt: skip
    """Return o [B, H, D]; mid_o [B, H, splits, D], mid_lse [B, H, splits], b_seqlen [B] int32."""
    B, H, splits, D = mid_o.shape
    o = torch.empty([B, H, D], dtype=mid_o.dtype, device=mid_o.device)
    stream, grid = torch.cuda.current_stream(), (ct.cdiv(D, CHUNK), H, B)
    parts, tail = splits // SPLITS, splits % SPLITS > 0
    if parts > 0 and D % CHUNK == 0 and (parts + tail) * SPLITS * CHUNK <= MOST_VALUES * 32 * WARPS:
        last = splits - SPLITS
        arrays = (mid_o, mid_lse, mid_o[:, :, last:], mid_lse[:, :, last:], b_seqlen, o)
        ct.launch(stream, grid, hinted(exact_kernel, WARPS), (*arrays, block_seq, SPLITS, CHUNK, parts, tail))
    else:
        arrays = (mid_o, mid_lse, b_seqlen, o)
        ct.launch(stream, grid, hinted(combine_kernel, WARPS), (*arrays, block_seq, SPLITS, CHUNK))
    return o


def _tile(case: Case) -> int:
    """Splits per tile: as few as a thread's vector of 16 bytes asks for, or, where there are many, more for few rounds."""
    splits = -(-case["seq_len"] // case["block_seq"])
    return 512 if splits > 768 else 32 if splits > 384 else 16


def default(case: Case) -> Config:
    # 32 columns are a line of 128 bytes of every split's row, of which a thread has a vector of 16 bytes in every tile.
    tile = _tile(case)
    return {"SPLITS": tile, "CHUNK": 32 if tile == 16 else 16, "WARPS": 8 if tile > 32 else 4}


def space(case: Case) -> list[Config]:
    return [
        {"SPLITS": splits, "CHUNK": chunk, "WARPS": warps}
        for splits in sorted({max(16, _tile(case) // 2), _tile(case), 2 * _tile(case)})
        for chunk in (8, 16, 32)
        for warps in (4, 8)
        if splits * chunk >= 64 * warps  # with less for a thread, the compiler gives every thread the whole tile
    ]


KERNEL = Kernel(run=run, default=default, space=space)
