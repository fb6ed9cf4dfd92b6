"""Gating in TileLang: one block takes several tokens, and finds their k largest logits one after the other.

What counts is the number of instructions per logit. A 16-bit logit and its column are packed into one 32-bit key: the logit
above, as an integer in the same order, and the column below, counted from the end so that of equal logits the lowest
column is the largest key. One maximum finds both, and since keys are unique, comparing keys removes the winner. For
fp32 logits such keys would have 64 bits, which take two registers and twice the instructions: there, a second
reduction finds the lowest column that holds the maximum.
A token belongs to `threads / ROWS` neighbouring threads of a warp, which find a maximum by shuffles, and all of which
keep the winners.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tilelang_rows import row_layout, vector_width

LOG2E = 1.4426950408889634  # exp(x) = 2^(x·log2 e), and the GPU has an instruction for 2^x


def flip(key):
    """Map a key whose upper half is a float's bits to an integer in the same order, and back.

    Negative floats order by falling bits; the column stays as it is.
    """
    return key ^ ((key >> 31) & 0x7FFF0000)


@tilelang.jit
def gating_kernel(dtype: torch.dtype, K: int, ROWS: int, BLOCK: int, VEC: int, threads: int):
    """One block, ROWS tokens: BLOCK >= E, and VEC divides E. K is compiled in, so that winners have registers."""
    M, E = T.dynamic("M"), T.dynamic("E")
    PACKED = dtype.itemsize == 2
    KEY = T.int32 if PACKED else T.float32
    # Below all others, or NaN, which no maximum takes and no number equals.
    REMOVED = T.min_value(T.int32) if PACKED else T.float32(float("nan"))
    GROUP = threads // ROWS
    layout = T.Fragment((ROWS, BLOCK), forward_fn=row_layout(ROWS, VEC, threads))
    winners_layout = T.Fragment((K, ROWS), forward_fn=lambda s, i, copy: (i * GROUP + copy, s), replicate=GROUP)

    @T.prim_func
    def gating(logits: T.Tensor((M, E), dtype), weights: T.Tensor((M, K), dtype), indices: T.Tensor((M, K), T.int32)):
        with T.Kernel(T.ceildiv(M, ROWS), threads=threads) as block:
            T.assume(E % VEC == 0)  # so that every row starts at a multiple of VEC, and loads are VEC wide
            x = T.alloc_fragment((ROWS, BLOCK), dtype)
            keys = T.alloc_fragment((ROWS, BLOCK), KEY)
            found = T.alloc_fragment((ROWS, BLOCK), T.int32)
            winner = T.alloc_fragment((ROWS,), KEY)
            column = T.alloc_fragment((ROWS,), T.int32)
            winners = T.alloc_fragment((K, ROWS), KEY)
            columns = T.alloc_fragment((K, ROWS), T.int32)
            values = T.alloc_fragment((K, ROWS), T.float32)
            largest = T.alloc_fragment((ROWS,), T.float32)
            total = T.alloc_fragment((ROWS,), T.float32)
            T.annotate_layout({x: layout, keys: layout, found: layout})
            T.annotate_layout({winners: winners_layout, columns: winners_layout, values: winners_layout})
            for i, j in T.Parallel(ROWS, BLOCK):
                x[i, j] = T.if_then_else(block * ROWS + i < M and j < E, logits[block * ROWS + i, j], 0)
            for i, j in T.Parallel(ROWS, BLOCK):
                if PACKED:
                    bits = T.cast(T.reinterpret(x[i, j], T.int16), T.int32)
                    bits = T.if_then_else(bits == -0x8000, 0, bits)  # -0 ties with +0
                    keys[i, j] = T.if_then_else(j < E, flip((bits << 16) | (0x7FFF - j)), REMOVED)
                else:
                    keys[i, j] = T.if_then_else(j < E, x[i, j], REMOVED)
            for s in T.unroll(K):
                T.reduce_max(keys, winner, dim=1)
                if PACKED:
                    for i in T.Parallel(ROWS):
                        winners[s, i] = winner[i]
                    for i, j in T.Parallel(ROWS, BLOCK):
                        keys[i, j] = T.if_then_else(keys[i, j] == winner[i], REMOVED, keys[i, j])
                else:
                    for i, j in T.Parallel(ROWS, BLOCK):
                        found[i, j] = T.if_then_else(keys[i, j] == winner[i], j, E)
                    T.reduce_min(found, column, dim=1)
                    for i in T.Parallel(ROWS):
                        winners[s, i] = winner[i]
                        columns[s, i] = column[i]
                    for i, j in T.Parallel(ROWS, BLOCK):
                        keys[i, j] = T.if_then_else(j == column[i], REMOVED, keys[i, j])
            for s in T.unroll(K):
                for i in T.Parallel(ROWS):
                    if PACKED:
                        bits = flip(winners[s, i])
                        values[s, i] = T.cast(T.reinterpret(T.cast(bits >> 16, T.int16), dtype), T.float32)
                        columns[s, i] = 0x7FFF - (bits & 0xFFFF)
                    else:
                        values[s, i] = winners[s, i]
            for i in T.Parallel(ROWS):
                largest[i] = values[0, i]
            T.clear(total)
            for s in T.unroll(K):
                for i in T.Parallel(ROWS):
                    values[s, i] = T.exp2((values[s, i] - largest[i]) * LOG2E)
                    total[i] += values[s, i]
            for i in T.Parallel(ROWS):
                total[i] = 1 / total[i]
            for s in T.unroll(K):
                for i in T.Parallel(ROWS):
                    if block * ROWS + i < M:
                        weights[block * ROWS + i, s] = T.cast(values[s, i] * total[i], dtype)
                        indices[block * ROWS + i, s] = columns[s, i]

    return gating


def run(logits: torch.Tensor, M: int, E: int, k: int, *, ROWS: int, threads: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights [M, k] in the dtype of logits [M, E], and indices [M, k] int32, in descending order."""
    weights = torch.empty((M, k), dtype=logits.dtype, device=logits.device)
    indices = torch.empty((M, k), dtype=torch.int32, device=logits.device)
    vec = vector_width(E, logits.element_size())
    step = threads // ROWS * vec  # one access per thread
    gating_kernel(logits.dtype, k, ROWS, -(-E // step) * step, vec, threads)(logits, weights, indices)
    return weights, indices


def _config(ROWS: int, group: int) -> Config:
    return {"ROWS": ROWS, "threads": ROWS * group}


def default(case: Case) -> Config:
    # Eight threads per token, with 16 of 128 logits each, and two blocks for each of 132 SMs where there are so many
    # tokens; else more threads per token and fewer tokens per block.
    threads, group = (128, 8) if case["M"] >= 264 * 16 else (64, 16)
    while group < 32 and case["E"] > 32 * group:
        group *= 2
    return _config(threads // group, group)


def space(case: Case) -> list[Config]:
    return [
        _config(threads // group, group)
        for threads in (32, 64, 128, 256)
        for group in (4, 8, 16, 32)
        if group == 32 or case["E"] <= 64 * group
    ]


KERNEL = Kernel(run=run, default=default, space=space)
