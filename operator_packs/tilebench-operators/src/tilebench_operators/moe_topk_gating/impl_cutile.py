"""Gating in cuTile: one block takes several tokens, and finds each of their k largest logits by one or two reductions.

A 16-bit logit and its column are packed into one integer key of 32 bits: the logit above, as an integer in the same
order, and the column below, counted from the end so that of equal logits the lowest column is the largest key. One maximum
finds both. Keys are unique and never change: minus the last winner, winners so far are small numbers, while all keys below
wrap around to large ones in the same order, so the maximum of the differences finds the next winner.
For fp32 logits such keys would have 64 bits, twice the registers and comparisons: there the maximum is followed by a
minimum of the columns that hold it.
"""

import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._cutile_rows import load, store
from tilebench_operators._tile_rows import hinted

LOG2_E = math.log2(math.e)  # exp(x) = 2^(x·log2 e), and the GPU has an instruction for 2^x
MIDDLE = 2**31  # what separates signed from unsigned integers
NEG_INF, ZERO = ct.PaddingMode.NEG_INF, ct.PaddingMode.ZERO


def pack(bits, columns):
    """Return keys (uint32) of 16-bit logits, the upper halves of `bits`: their values as integers, and odd codes below.

    Minus x is ~x + 1. Without the 1, which belongs to the lowest bit, negative logits have even codes, and -0 ties with +0.
    """
    codes = ct.bitcast(2 * (0x7FFF - columns) + 1, ct.uint32) + ct.uint32(MIDDLE)
    return ct.bitcast((bits & 0x7FFF0000) ^ (bits >> 31), ct.uint32) + codes


def unpack(key, dtype):
    """Return the logits of the 16-bit type `dtype` in `key` as fp32, and their columns as int32."""
    code = ct.bitcast(key - ct.uint32(MIDDLE), ct.int32)
    upper = code >> 16
    bits = ct.abs(upper) | (upper & -0x8000)
    return ct.bitcast(bits.astype(ct.int16), dtype).astype(ct.float32), 0x7FFF - ((code >> 1) & 0x7FFF)


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
    """One block, ROWS tokens of 16 bits: weights and indices are [M, K]; TILE >= E, SLOTS >= K.

    INSIDE says that E is TILE, K is SLOTS and ROWS divides M. Then logits [M, E / 2] are pairs as int32, and keys are those
    of even columns and those of odd ones; else logits [M, E] are int16.
    """
    i = ct.bid(0)
    if INSIDE:
        pairs = load(logits, (i, 0), (ROWS, TILE // 2), True, ZERO)
        columns = 2 * ct.arange(TILE // 2, dtype=ct.int32)[None, :]
        keys = (pack(pairs << 16, columns), pack(pairs, columns + 1))
    else:
        bits = load(logits, (i, 0), (ROWS, TILE), False, ZERO).astype(ct.int32) << 16
        columns = ct.arange(TILE, dtype=ct.int32)[None, :]
        keys = (ct.where(columns < logits.shape[1], pack(bits, columns), ct.uint32(0)),)
    values, picked = (), ()
    last = ct.zeros((ROWS, 1), ct.uint32)
    for _ in ct.static_iter(range(K)):
        found = keys[0] - last
        for others in ct.static_iter(keys[1:]):
            found = ct.maximum(found, others - last)
        last += ct.max(found, 1, keepdims=True)
        value, column = unpack(last, weights.dtype)
        values += (value,)
        picked += (column,)
    store_softmax(weights, indices, i, values, picked, ROWS, SLOTS, INSIDE)


@ct.kernel
def columns_kernel(
    logits, weights, indices, K: ct.Constant[int], SLOTS: ct.Constant[int],
    ROWS: ct.Constant[int], TILE: ct.Constant[int], INSIDE: ct.Constant[bool],
):  # fmt: skip
    """As `keys_kernel`, for fp32 logits [M, E]. What is picked becomes NaN, which no maximum takes and no number equals."""
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
            x = ct.where(columns == column, math.nan, x)
    store_softmax(weights, indices, i, values, picked, ROWS, SLOTS, INSIDE)


def run(logits: torch.Tensor, M: int, E: int, k: int, *, ROWS: int, WARPS: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights [M, k] in the dtype of logits [M, E], and indices [M, k] int32, in descending order."""
    weights = torch.empty((M, k), dtype=logits.dtype, device=logits.device)
    indices = torch.empty((M, k), dtype=torch.int32, device=logits.device)
    slots, tile = 1 << (k - 1).bit_length(), 1 << (E - 1).bit_length()
    inside = slots == k and tile == E and M % ROWS == 0
    kernel = columns_kernel
    if logits.element_size() == 2:
        kernel = keys_kernel
        inside = inside and E > 1 and logits.data_ptr() % 4 == 0
        logits = logits.view(torch.int32 if inside else torch.int16)
    arguments = (logits, weights, indices, k, slots, ROWS, tile, inside)
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
