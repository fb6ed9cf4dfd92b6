"""Gating in cuTile: one block takes several tokens, and finds each of their k largest logits by one maximum.

A logit and its column are packed into one integer key: the logit above, as an integer in the same order, and the
column below, counted from the end so that of equal logits the lowest column is the largest key. Keys are unique, so a
winner is removed by comparing keys. 16-bit logits make 32-bit keys, fp32 logits 64-bit ones.
"""

import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tile_rows import hinted

LOG2_E = math.log2(math.e)  # exp(x) = 2^(x·log2 e), and the GPU has an instruction for 2^x
ZERO = ct.PaddingMode.ZERO


def flip(bits, BITS):
    """Map a float's bits to an integer in the same order, and back: negative floats order by falling bits."""
    return bits ^ ((bits >> (BITS - 1)) & (2 ** (BITS - 1) - 1))


def pack(x, columns, BITS):
    """Return keys [rows, columns] of logits x [rows, columns] with BITS bits each; keys have 2·BITS bits."""
    bits = ct.bitcast(x, ct.int16 if BITS == 16 else ct.int32).astype(ct.int32)
    bits = flip(ct.where(x == 0.0, 0, bits), BITS)  # -0 ties with +0
    last = 2 ** (BITS - 1) - 1 - columns
    if BITS == 16:
        return (bits << 16) | last
    return (bits.astype(ct.int64) << 32) | last.astype(ct.int64)


def unpack(key, dtype, BITS):
    """Return the logits of type `dtype` in `key` as fp32, and their columns as int32."""
    bits = flip((key >> BITS).astype(ct.int32), BITS)
    narrow = bits.astype(ct.int16) if BITS == 16 else bits
    columns = 2 ** (BITS - 1) - 1 - (key & (2**BITS - 1)).astype(ct.int32)
    return ct.bitcast(narrow, dtype).astype(ct.float32), columns


@ct.kernel
def gating_kernel(
    logits, weights, indices, K: ct.Constant[int], SLOTS: ct.Constant[int],
    ROWS: ct.Constant[int], TILE: ct.Constant[int], BITS: ct.Constant[int],
):  # fmt: skip
    """One block, ROWS tokens: logits are [M, E], weights and indices [M, K]; TILE >= E, SLOTS >= K."""
    i = ct.bid(0)
    lowest = ct.full((ROWS, 1), -(2 ** (2 * BITS - 1)), ct.int32 if BITS == 16 else ct.int64)
    columns = ct.arange(TILE, dtype=ct.int32)[None, :]
    # TMA takes longer to set up than it saves on one tile.
    x = ct.load(logits, (i, 0), (ROWS, TILE), padding_mode=ZERO, allow_tma=False)
    keys = ct.where(columns < logits.shape[1], pack(x, columns, BITS), lowest)

    slots = ct.arange(SLOTS, dtype=ct.int32)[None, :]
    winners = ct.broadcast_to(lowest, (ROWS, SLOTS))
    for slot in ct.static_iter(range(K)):
        winner = ct.max(keys, 1, keepdims=True)
        winners = ct.where(slots == slot, winner, winners)
        keys = ct.where(keys == winner, lowest, keys)

    values, picked = unpack(winners, logits.dtype, BITS)
    values = ct.where(slots < K, values, -math.inf)
    numerators = ct.exp2((values - ct.max(values, 1, keepdims=True)) * LOG2_E)
    results = numerators / ct.sum(numerators, 1, keepdims=True)
    ct.store(weights, (i, 0), results.astype(weights.dtype), allow_tma=False)
    ct.store(indices, (i, 0), picked, allow_tma=False)


def run(logits: torch.Tensor, M: int, E: int, k: int, *, ROWS: int, WARPS: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights [M, k] in the dtype of logits [M, E], and indices [M, k] int32, in descending order."""
    weights = torch.empty((M, k), dtype=logits.dtype, device=logits.device)
    indices = torch.empty((M, k), dtype=torch.int32, device=logits.device)
    slots, tile = 1 << (k - 1).bit_length(), 1 << (E - 1).bit_length()
    arguments = (logits, weights, indices, k, slots, ROWS, tile, 8 * logits.element_size())
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(M, ROWS),), hinted(gating_kernel, WARPS), arguments)
    return weights, indices


def default(case: Case) -> Config:
    # 128 threads with 8 to 32 logits each (fp32: 16, since their keys take two registers), and two blocks for each
    # of 132 SMs where there are so many tokens.
    rows = 8
    while rows < (16 if case.dtype_size == 4 else 32) and case["M"] >= 264 * 2 * rows:
        rows *= 2
    return {"ROWS": rows, "WARPS": 4}


def space(case: Case) -> list[Config]:
    tile = 1 << (case["E"] - 1).bit_length()
    return [
        {"ROWS": rows, "WARPS": warps}
        for rows in (2, 4, 8, 16, 32, 64)
        for warps in (4, 8)
        if 4 <= rows * tile // (32 * warps) <= 64
    ]


KERNEL = Kernel(run=run, default=default, space=space)
