"""Gating in cuTile: one block takes several tokens, and finds each of their k largest logits by one or two reductions.

A 16-bit logit and its column are packed into one integer key of 32 bits: the logit above, as an integer in the same
order, and the column below, counted from the end so that of equal logits the lowest column is the largest key. Keys are
unique, so one maximum finds a winner, which is removed by comparing keys. For fp32 logits such keys would have 64 bits,
twice the registers and comparisons: there the maximum is followed by a minimum of the columns that hold it.
"""

import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._cutile_rows import load, store
from tilebench_operators._tile_rows import hinted

LOG2_E = math.log2(math.e)  # exp(x) = 2^(x·log2 e), and the GPU has an instruction for 2^x
LOWEST = -(2**31)
NEG_INF, ZERO = ct.PaddingMode.NEG_INF, ct.PaddingMode.ZERO


def flip(bits):
    """Map a 16-bit float's bits to an integer in the same order, and back: negative floats order by falling bits."""
    return bits ^ ((bits >> 15) & 0x7FFF)


def pack(x, columns):
    """Return int32 keys [rows, columns] of 16-bit logits x [rows, columns]."""
    bits = ct.bitcast(x, ct.int16).astype(ct.int32)
    bits = flip(ct.where(x == 0.0, 0, bits))  # -0 ties with +0
    return (bits << 16) | (0x7FFF - columns)


def unpack(key, dtype):
    """Return the logits of the 16-bit type `dtype` in `key` as fp32, and their columns as int32."""
    value = ct.bitcast(flip(key >> 16).astype(ct.int16), dtype).astype(ct.float32)
    return value, 0x7FFF - (key & 0xFFFF)


def store_softmax(weights, indices, i, values, columns, ROWS, SLOTS, INSIDE):
    """Store the softmax of `values`, tiles [ROWS, 1] in descending order, and their columns; both outputs are [M, K]."""
    numerators = ()
    total = ct.zeros((ROWS, 1), ct.float32)
    for value in ct.static_iter(values):
        numerator = ct.exp2((value - values[0]) * LOG2_E, flush_to_zero=True)
        numerators += (numerator,)
        total += numerator
    inverse = ct.truediv(1.0, total, rounding_mode=ct.RoundingMode.APPROX)

    slots = ct.arange(SLOTS, dtype=ct.int32)[None, :]
    results = ct.zeros((ROWS, SLOTS), ct.float32)
    picked = ct.zeros((ROWS, SLOTS), ct.int32)
    for slot in ct.static_iter(range(len(values))):
        results = ct.where(slots == slot, numerators[slot] * inverse, results)
        picked = ct.where(slots == slot, columns[slot], picked)
    store(weights, (i, 0), results.astype(weights.dtype), INSIDE)
    store(indices, (i, 0), picked, INSIDE)


@ct.kernel
def keys_kernel(
    logits, weights, indices, K: ct.Constant[int], SLOTS: ct.Constant[int],
    ROWS: ct.Constant[int], TILE: ct.Constant[int], INSIDE: ct.Constant[bool],
):  # fmt: skip
    """One block, ROWS tokens: 16-bit logits are [M, E], weights and indices [M, K]; TILE >= E, SLOTS >= K.

    INSIDE says that E is TILE, K is SLOTS and ROWS divides M.
    """
    i = ct.bid(0)
    columns = ct.arange(TILE, dtype=ct.int32)[None, :]
    keys = pack(load(logits, (i, 0), (ROWS, TILE), INSIDE, ZERO), columns)
    if not INSIDE:
        keys = ct.where(columns < logits.shape[1], keys, LOWEST)
    values, picked = (), ()
    for slot in ct.static_iter(range(K)):
        winner = ct.max(keys, 1, keepdims=True)
        value, column = unpack(winner, logits.dtype)
        values += (value,)
        picked += (column,)
        if slot < K - 1:
            keys = ct.where(keys == winner, LOWEST, keys)
    store_softmax(weights, indices, i, values, picked, ROWS, SLOTS, INSIDE)


@ct.kernel
def columns_kernel(
    logits, weights, indices, K: ct.Constant[int], SLOTS: ct.Constant[int],
    ROWS: ct.Constant[int], TILE: ct.Constant[int], INSIDE: ct.Constant[bool],
):  # fmt: skip
    """As `keys_kernel`, for fp32 logits. What is picked leaves a logit of -inf and the column TILE, which is no column."""
    i = ct.bid(0)
    columns = ct.arange(TILE, dtype=ct.int32)[None, :]
    x = load(logits, (i, 0), (ROWS, TILE), INSIDE, NEG_INF)
    values, picked = (), ()
    for slot in ct.static_iter(range(K)):
        value = ct.max(x, 1, keepdims=True)
        column = ct.min(ct.where(x == value, columns, TILE), 1, keepdims=True)
        values += (value,)
        picked += (column,)
        if slot < K - 1:
            x = ct.where(columns == column, -math.inf, x)
            columns = ct.where(columns == column, TILE, columns)
    store_softmax(weights, indices, i, values, picked, ROWS, SLOTS, INSIDE)


def run(logits: torch.Tensor, M: int, E: int, k: int, *, ROWS: int, WARPS: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights [M, k] in the dtype of logits [M, E], and indices [M, k] int32, in descending order."""
    weights = torch.empty((M, k), dtype=logits.dtype, device=logits.device)
    indices = torch.empty((M, k), dtype=torch.int32, device=logits.device)
    slots, tile = 1 << (k - 1).bit_length(), 1 << (E - 1).bit_length()
    inside = slots == k and tile == E and M % ROWS == 0
    arguments = (logits, weights, indices, k, slots, ROWS, tile, inside)
    kernel = keys_kernel if logits.element_size() == 2 else columns_kernel
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(M, ROWS),), hinted(kernel, WARPS), arguments)
    return weights, indices


def default(case: Case) -> Config:
    # 128 threads with 8 to 16 logits each, and two blocks for each of 132 SMs where there are so many tokens.
    return {"ROWS": 16 if case["M"] >= 264 * 16 else 8, "WARPS": 4}


def space(case: Case) -> list[Config]:
    tile = 1 << (case["E"] - 1).bit_length()
    return [
        {"ROWS": rows, "WARPS": warps}
        for rows in (2, 4, 8, 16, 32, 64)
        for warps in (4, 8)
        if 4 <= rows * tile // (32 * warps) <= 64
    ]


KERNEL = Kernel(run=run, default=default, space=space)
