"""Combining split-KV partial outputs in cuTile: a block owns a few columns of one head and all its splits.

The largest input has 2.6 MB, so latency decides: D is cut into chunks to have more blocks than the 16 heads, and all
loads of a block should be under way at once. A load with a bounds check becomes a branch, which the compiler moves behind the
reductions of what was loaded before. So where tiles of a power of two divide the splits, `exact_kernel` takes them without
checks; it compiles once per number of tiles. Other inputs go through `combine_kernel`, with a running maximum.
"""

import functools
import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

LOG2_E = math.log2(math.e)
ZERO = ct.PaddingMode.ZERO
NEG_INF = ct.PaddingMode.NEG_INF
MOST_PARTS = 20  # tiles of splits that a block of `exact_kernel` keeps in registers


@ct.kernel
def exact_kernel(
    mid, lse, seqlen, o, block_seq, SPLITS: ct.Constant[int], CHUNK: ct.Constant[int], PARTS: ct.Constant[int]
):  # fmt: skip
    """As `combine_kernel`, for PARTS·SPLITS splits and D a multiple of CHUNK."""
    chunk, head, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    length = ct.load(seqlen, (batch,), (), check_bounds=False)
    tiles, weights = (), ()
    for part in ct.static_iter(range(PARTS)):
        where = (batch, head, part, chunk)
        tile = ct.load(mid, where, (1, 1, SPLITS, CHUNK), check_bounds=False, allow_tma=False)
        weight = ct.load(lse, where[:3], (1, 1, SPLITS), check_bounds=False, allow_tma=False)
        tiles += (tile.reshape((SPLITS, CHUNK)),)
        weights += (weight.reshape((SPLITS, 1)) * LOG2_E,)
    maxima = ct.full((SPLITS, 1), -math.inf, ct.float32)
    for part in ct.static_iter(range(PARTS)):
        held = (part * SPLITS + ct.arange(SPLITS, dtype=ct.int32)[:, None]) * block_seq < length
        maxima = ct.maximum(maxima, ct.where(held, weights[part], -math.inf))
    # Both branches are equal, but the compiler does not know, and loads the tiles together with the weights: by itself it
    # would load them where they are used, once the weights have arrived and their maximum is known.
    for part in ct.static_iter(range(PARTS)):
        maxima = ct.where(tiles[part] == 0.0, maxima + 0.0, maxima)
    totals = ct.zeros((SPLITS, 1), ct.float32)
    accumulator = ct.zeros((SPLITS, CHUNK), ct.float32)
    for part in ct.static_iter(range(PARTS)):
        held = (part * SPLITS + ct.arange(SPLITS, dtype=ct.int32)[:, None]) * block_seq < length
        weight = ct.where(held, ct.exp2(weights[part] - maxima), 0.0)
        totals += weight
        accumulator += ct.where(held, weight * tiles[part], 0.0)  # unused splits may hold anything, NaN too
    # Every lane had a maximum of its own until here.
    scale = ct.exp2(maxima - ct.max(maxima, 0, keepdims=True))
    result = ct.sum(accumulator * scale, 0) * (1.0 / ct.sum(totals * scale, 0))
    ct.store(o, (batch, head, chunk), result.reshape((1, 1, CHUNK)), check_bounds=False, allow_tma=False)


@ct.kernel
def combine_kernel(mid, lse, seqlen, o, block_seq, SPLITS: ct.Constant[int], CHUNK: ct.Constant[int]):
    """mid [B, H, splits, D], lse [B, H, splits], seqlen [B] int32, o [B, H, D]; CHUNK columns per block."""
    chunk, head, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    length = ct.load(seqlen, (batch,), ())
    maximum = ct.full((1, 1), -math.inf, ct.float32)
    total = ct.zeros((1, 1), ct.float32)
    accumulator = ct.zeros((1, CHUNK), ct.float32)
    # The loop's bounds and the loads are those of the allocation, so that they need not wait for the sequence's length.
    for part in range(ct.cdiv(lse.shape[1], SPLITS)):
        shape = (1, 1, SPLITS)
        weight = ct.load(lse, (batch, head, part), shape, padding_mode=NEG_INF, allow_tma=False).reshape((SPLITS, 1))
        shape = (1, 1, SPLITS, CHUNK)
        tile = ct.load(mid, (batch, head, part, chunk), shape, padding_mode=ZERO, allow_tma=False)
        # By the split's first token, without a division.
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
    arguments = (mid_o, mid_lse, b_seqlen, o, block_seq, SPLITS, CHUNK)
    if splits % SPLITS == 0 and D % CHUNK == 0 and splits // SPLITS <= MOST_PARTS:
        ct.launch(stream, grid, hinted(exact_kernel, WARPS), (*arguments, splits // SPLITS))
    else:
        ct.launch(stream, grid, hinted(combine_kernel, WARPS), arguments)
    return o


def _tiles(case: Case) -> list[int]:
    """Splits per tile: powers of two that divide the case's splits, or else one that covers them, if it may."""
    splits = -(-case["seq_len"] // case["block_seq"])
    exact = [tile for tile in (64, 32, 16) if splits % tile == 0 and splits // tile <= MOST_PARTS]
    return exact or [min(512, max(16, 1 << (splits - 1).bit_length()))]


def default(case: Case) -> Config:
    # 16 columns are 64 bytes of every split's row, two sectors: 128 blocks in the benchmark's grid.
    return {"SPLITS": _tiles(case)[0], "CHUNK": 16, "WARPS": 4}


def space(case: Case) -> list[Config]:
    return [
        {"SPLITS": splits, "CHUNK": chunk, "WARPS": warps}
        for splits in _tiles(case)
        for chunk in (8, 16, 32)
        for warps in (4, 8)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
