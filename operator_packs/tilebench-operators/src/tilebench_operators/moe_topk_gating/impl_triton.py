"""Gating in Triton: one program takes several tokens, and finds their k largest logits one after the other.

What counts is the number of instructions per logit. A 16-bit logit and its column are packed into one unsigned 32-bit key:
the logit above, as an integer in the same order, and the column below, counted from the end so that of equal logits the
lowest column is the largest key. One maximum finds both, and one subtraction removes the winner: keys are unique, so the
winner becomes 0, while all below it wrap around and stay in order, above what was removed earlier. For fp32 logits such
keys would have 64 bits, which take two registers and twice the instructions: there, a second reduction finds the lowest
column that holds the maximum.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel

LOG2_E = tl.constexpr(1.4426950408889634)  # exp(x) = 2^(x·log2 e), and the GPU has an instruction for 2^x
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def pack(x, code):
    """Keys (uint32) of 16-bit logits x and 16-bit codes: the logit's order above, the code below.

    A float's bits as an unsigned integer in the same order: the sign turns around, and of negative numbers all bits do. That is
    done to two logits at once, and one instruction joins a logit and its code.
    """
    bits = (x + 0.0).to(x.dtype).to(tl.int16, bitcast=True)  # -0 + 0 is +0, with which it ties
    if INTERPRETED:
        wide = bits.to(tl.int32)
        ordered = (wide ^ ((wide >> 16) | 0x8000)) & 0xFFFF
        return ((ordered << 16) | code.to(tl.int32)).to(tl.uint32, bitcast=True)
    else:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 ordered;
            prmt.b32 ordered, $2, 0, 0xbb99;
            or.b32 ordered, ordered, 0x80008000;
            xor.b32 ordered, ordered, $2;
            prmt.b32 $0, ordered, $3, 0x1054;
            prmt.b32 $1, ordered, $3, 0x3276;
            }""",
            "=r,=r,r,r", [bits, code], dtype=tl.uint32, is_pure=True, pack=2,
        )  # fmt: skip


@triton.jit
def largest_packed(x, columns, E, slots, K: tl.constexpr, INSIDE: tl.constexpr):
    """The K largest of x [rows, BLOCK], 16 bits wide: their values as fp32 and their columns, both [rows, SLOTS]."""
    keys = pack(x, (0x7FFF - columns).to(tl.int16))
    if not INSIDE:
        keys = tl.where(columns < E, keys, 0)
    found = tl.zeros([x.shape[0], 1], tl.uint32)
    winners = tl.zeros([x.shape[0], slots.shape[1]], tl.uint32)
    for slot in tl.static_range(K):
        winner = tl.max(keys, axis=1, keep_dims=True)
        found += winner  # all keys have become smaller by what was found last
        winners = tl.where(slots == slot, found, winners)
        if slot + 1 < K:
            keys -= winner
    keys = winners.to(tl.int32, bitcast=True)
    bits = (keys >> 16) ^ (~(keys >> 31) | 0x8000)
    values = bits.to(tl.int16).to(x.dtype, bitcast=True).to(tl.float32)
    return values, 0x7FFF - (keys & 0xFFFF)


@triton.jit
def largest(x, columns, E, slots, K: tl.constexpr):
    """As `largest_packed`, for fp32. Padding and winners become NaN, which no maximum takes and no number equals."""
    x = tl.where(columns < E, x, float("nan"))
    values = tl.zeros([x.shape[0], slots.shape[1]], tl.float32)
    indices = tl.zeros([x.shape[0], slots.shape[1]], tl.int32)
    for slot in tl.static_range(K):
        value = tl.max(x, axis=1, keep_dims=True)
        index = tl.min(tl.where(x == value, columns, E), axis=1, keep_dims=True)
        values = tl.where(slots == slot, value, values)
        indices = tl.where(slots == slot, index, indices)
        if slot + 1 < K:
            x = tl.where(columns == index, float("nan"), x)
    return values, indices


@triton.jit
def gating_kernel(
    logits_ptr, weights_ptr, indices_ptr, M, E,
    K: tl.constexpr, SLOTS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, INSIDE: tl.constexpr,
):  # fmt: skip
    """One program, ROWS tokens: logits point to [M, E], weights and indices to [M, K]; BLOCK >= E, SLOTS >= K.

    INSIDE: BLOCK is E.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    slots = tl.arange(0, SLOTS)[None, :]
    x = tl.load(logits_ptr + rows.to(tl.int64) * E + columns, mask=(rows < M) & (columns < E), other=0.0)
    if x.dtype == tl.float32:
        values, indices = largest(x, columns, E, slots, K)
    else:
        values, indices = largest_packed(x, columns, E, slots, K, INSIDE)

    values = tl.where(slots < K, values, float("-inf"))
    numerators = tl.exp2((values - tl.max(values, axis=1, keep_dims=True)) * LOG2_E)
    weights = numerators * (1.0 / tl.sum(numerators, axis=1, keep_dims=True))
    out = rows.to(tl.int64) * K + slots
    mask = (rows < M) & (slots < K)
    tl.store(weights_ptr + out, weights.to(x.dtype), mask=mask)
    tl.store(indices_ptr + out, indices, mask=mask)


def run(
    logits: torch.Tensor, M: int, E: int, k: int, *, ROWS: int, num_warps: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights [M, k] in the dtype of logits [M, E], and indices [M, k] int32, in descending order."""
    weights = torch.empty((M, k), dtype=logits.dtype, device=logits.device)
    indices = torch.empty((M, k), dtype=torch.int32, device=logits.device)
    BLOCK = triton.next_power_of_2(E)
    gating_kernel[(triton.cdiv(M, ROWS),)](
        logits, weights, indices, M, E,
        K=k, SLOTS=triton.next_power_of_2(k), ROWS=ROWS, BLOCK=BLOCK, INSIDE=BLOCK == E, num_warps=num_warps,
    )  # fmt: skip
    return weights, indices


def default(case: Case) -> Config:
    # 128 threads with 8 to 32 logits each (fp32: 16, which are as many bytes), and two programs for each of 132 SMs
    # where there are so many tokens.
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
