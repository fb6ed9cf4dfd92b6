"""Gating in Triton: one program takes several tokens, and finds each of their k largest logits by one maximum.

A logit and its column are packed into one integer key: the logit above, as an integer in the same order, and the
column below, counted from the end so that of equal logits the lowest column is the largest key. Keys are unique, so a
winner is removed by comparing keys. 16-bit logits make 32-bit keys, fp32 logits 64-bit ones.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def flip(bits, BITS: tl.constexpr):
    """Map a float's bits to an integer in the same order, and back: negative floats order by falling bits."""
    return bits ^ ((bits >> (BITS - 1)) & ((1 << (BITS - 1)) - 1))


@triton.jit
def pack(x, columns, KEY: tl.constexpr, BITS: tl.constexpr):
    """Return keys [rows, columns] of type KEY (2·BITS wide) of logits x [rows, columns] with BITS bits each."""
    bits = x.to(tl.int16 if BITS == 16 else tl.int32, bitcast=True)
    bits = tl.where(x.to(tl.float32) == 0.0, 0, bits.to(tl.int32))  # -0 ties with +0
    return (flip(bits, BITS).to(KEY) << BITS) | ((1 << (BITS - 1)) - 1 - columns).to(KEY)


@triton.jit
def unpack(key, FLOAT: tl.constexpr, BITS: tl.constexpr):
    """Return the logits in `key` as fp32, and their columns as int32."""
    bits = flip((key >> BITS).to(tl.int32), BITS)
    logits = bits.to(tl.int16 if BITS == 16 else tl.int32).to(FLOAT, bitcast=True).to(tl.float32)
    return logits, (1 << (BITS - 1)) - 1 - (key & ((1 << BITS) - 1)).to(tl.int32)


@triton.jit
def gating_kernel(
    logits_ptr, weights_ptr, indices_ptr, M, E,
    K: tl.constexpr, SLOTS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program, ROWS tokens: logits point to [M, E], weights and indices to [M, K]; BLOCK >= E, SLOTS >= K."""
    FLOAT: tl.constexpr = logits_ptr.dtype.element_ty
    BITS: tl.constexpr = FLOAT.primitive_bitwidth
    KEY: tl.constexpr = tl.int32 if BITS == 16 else tl.int64
    LOWEST: tl.constexpr = -(1 << (2 * BITS - 1))

    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    x = tl.load(logits_ptr + rows.to(tl.int64) * E + columns, mask=(rows < M) & (columns < E), other=0.0)
    keys = tl.where(columns < E, pack(x, columns, KEY, BITS), LOWEST)

    slots = tl.arange(0, SLOTS)[None, :]
    winners = tl.full([ROWS, SLOTS], LOWEST, KEY)
    for slot in range(K):
        winner = tl.max(keys, axis=1, keep_dims=True)
        winners = tl.where(slots == slot, winner, winners)
        keys = tl.where(keys == winner, LOWEST, keys)

    values, indices = unpack(winners, FLOAT, BITS)
    values = tl.where(slots < K, values, float("-inf"))
    numerators = tl.exp(values - tl.max(values, axis=1, keep_dims=True))
    weights = numerators / tl.sum(numerators, axis=1, keep_dims=True)
    out = rows.to(tl.int64) * K + slots
    mask = (rows < M) & (slots < K)
    tl.store(weights_ptr + out, weights.to(FLOAT), mask=mask)
    tl.store(indices_ptr + out, indices, mask=mask)


def run(
    logits: torch.Tensor, M: int, E: int, k: int, *, ROWS: int, num_warps: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights [M, k] in the dtype of logits [M, E], and indices [M, k] int32, in descending order."""
    weights = torch.empty((M, k), dtype=logits.dtype, device=logits.device)
    indices = torch.empty((M, k), dtype=torch.int32, device=logits.device)
    gating_kernel[(triton.cdiv(M, ROWS),)](
        logits, weights, indices, M, E,
        K=k, SLOTS=triton.next_power_of_2(k), ROWS=ROWS, BLOCK=triton.next_power_of_2(E), num_warps=num_warps,
    )  # fmt: skip
    return weights, indices


def default(case: Case) -> Config:
    # 128 threads with 8 to 32 logits each (fp32: 16, since their keys take two registers), and two programs for each
    # of 132 SMs where there are so many tokens.
    rows = 8
    while rows < (16 if case.dtype_size == 4 else 32) and case["M"] >= 264 * 2 * rows:
        rows *= 2
    return {"ROWS": rows, "num_warps": 4}


def space(case: Case) -> list[Config]:
    return [
        {"ROWS": rows, "num_warps": warps}
        for rows in (2, 4, 8, 16, 32, 64)
        for warps in (1, 2, 4, 8)
        if 4 <= rows * triton.next_power_of_2(case["E"]) // (32 * warps) <= 64
    ]


KERNEL = Kernel(run=run, default=default, space=space)
