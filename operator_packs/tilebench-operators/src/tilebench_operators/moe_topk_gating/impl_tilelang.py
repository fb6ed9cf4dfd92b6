"""Gating in TileLang: one block takes several tokens, and finds their k largest logits one after the other.

A token belongs to a group of neighbouring threads of a warp, which find a maximum by shuffles, and all of which keep the
winners. What counts is the number of instructions per logit. A 16-bit logit and its column are packed into one 32-bit key
(`keys_kernel`): the logit above, as an integer in the same order, and the column below, counted from the end so that of
equal logits the lowest column is the largest key. One maximum finds both. Keys are unique and never change: minus the last
winner, winners so far are small numbers, while all keys below wrap around to large ones in the same order, so the maximum
of the differences finds the next winner.
For fp32 logits such keys would have 64 bits, which take two registers and twice the instructions: there, a second
reduction finds the lowest column that holds the maximum (`columns_kernel`).
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tilelang_rows import row_layout, vector_width

LOG2E = 1.4426950408889634  # exp(x) = 2^(x·log2 e), and the GPU has an instruction for 2^x


MIDDLE = 1 << 31  # what separates signed from unsigned integers


def pack(bits, column):
    """The key (uint32) of a 16-bit logit, which is the upper half of `bits`: its value as an integer, and an odd code below.

    Minus x is ~x + 1. Without the 1, which belongs to the lowest bit, negative logits have even codes, and -0 ties with +0.
    """
    value = (bits & 0x7FFF0000) ^ (bits >> 31)
    return T.cast(value, T.uint32) + T.uint32(MIDDLE + 2 * (0x7FFF - column) + 1)


@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_DISABLE_SAFE_MEMORY_ACCESS: True})  # it keeps inside by itself
def keys_kernel(dtype: torch.dtype, K: int, GROUP: int, STEPS: int, PAIRS: bool, threads: int, INSIDE: bool):
    """One block, threads / GROUP tokens of 16 bits: a thread takes STEPS times 8 of its token's columns.

    PAIRS: 8 columns are read at once; logits [M, WIDTH] are pairs as int32 then, else int16. INSIDE: no column is beyond
    the last one, and WIDTH is compiled in. K is compiled in, so that winners have registers.
    """
    M, WIDTH = T.dynamic("M"), GROUP * STEPS * 4 if INSIDE and PAIRS else T.dynamic("WIDTH")
    E = WIDTH * 2 if PAIRS else WIDTH
    WORD, WORDS = (T.int32, 4) if PAIRS else (T.int16, 8)  # of 8 columns
    ROWS = threads // GROUP
    OUT = K if K in (2, 4) else 1  # results that are written at once

    @T.prim_func
    def gating(
        logits: T.Tensor((M, WIDTH), WORD), weights: T.Tensor((M, K), dtype), indices: T.Tensor((M, K), T.int32)
    ):
        with T.Kernel(T.ceildiv(M, ROWS), threads=threads) as block:
            if PAIRS and not INSIDE:
                T.assume(WIDTH % 4 == 0)  # so that every row starts at a multiple of 16 bytes
            x = T.alloc_local((STEPS * WORDS,), WORD)
            keys = T.alloc_local((STEPS * 8,), T.uint32)
            own = T.alloc_local((1,), T.uint32)
            last = T.alloc_local((1,), T.uint32)
            winner = T.alloc_local((1,), T.uint32)
            code = T.alloc_local((1,), T.int32)
            columns = T.alloc_local((K,), T.int32)
            values = T.alloc_local((K,), T.float32)
            results = T.alloc_local((K,), dtype)
            largest = T.alloc_local((1,), T.float32)
            total = T.alloc_local((1,), T.float32)
            tid = T.get_thread_binding()
            row = block * ROWS + tid // GROUP
            source = T.min(row, M - 1)
            first = tid % GROUP * 8
            for u in T.unroll(STEPS):
                if PAIRS:
                    if INSIDE or u * GROUP * 8 + first < E:
                        for v in T.vectorized(4):
                            x[u * 4 + v] = logits[source, u * GROUP * 4 + first // 2 + v]
                else:
                    for v in T.unroll(8):
                        if u * GROUP * 8 + first + v < E:
                            x[u * 8 + v] = logits[source, u * GROUP * 8 + first + v]
            # Keys count columns from the thread's first one, so that constants do. The difference to the token's is
            # subtracted with the last winner.
            own[0] = T.cast(first * 2, T.uint32)
            for u in T.unroll(STEPS):
                for v in T.unroll(WORDS):
                    if PAIRS:
                        keys[u * 8 + v * 2] = pack(x[u * 4 + v] << 16, u * GROUP * 8 + v * 2)
                        keys[u * 8 + v * 2 + 1] = pack(x[u * 4 + v], u * GROUP * 8 + v * 2 + 1)
                    else:
                        keys[u * 8 + v] = pack(T.cast(x[u * 8 + v], T.int32) << 16, u * GROUP * 8 + v)
            if not INSIDE:
                for u in T.unroll(STEPS):
                    for v in T.unroll(8):
                        if u * GROUP * 8 + first + v >= E:
                            keys[u * 8 + v] = own[0]  # below all others
            last[0] = 0
            for s in T.unroll(K):
                winner[0] = keys[0] - last[0]
                for e in T.unroll(1, STEPS * 8):
                    winner[0] = T.max(winner[0], keys[e] - last[0])
                if s == 0:
                    winner[0] -= own[0]
                    last[0] = own[0]
                for step in T.unroll(GROUP.bit_length() - 1):
                    winner[0] = T.max(winner[0], T.shfl_xor(winner[0], 1 << step))
                last[0] += winner[0]
                code[0] = T.cast(last[0] - own[0] - T.uint32(MIDDLE), T.int32)
                columns[s] = 0x7FFF - (code[0] >> 1 & 0x7FFF)
                code[0] = code[0] >> 16
                code[0] = T.abs(code[0]) | (code[0] & 0x8000)  # the logit's bits again
                values[s] = T.cast(T.reinterpret(T.cast(code[0], T.int16), dtype), T.float32)
            largest[0] = values[0]
            total[0] = 0
            for s in T.unroll(K):
                values[s] = T.exp2((values[s] - largest[0]) * LOG2E)
                total[0] += values[s]
            total[0] = T.fast_rcp(total[0])
            for s in T.unroll(K):
                results[s] = T.cast(values[s] * total[0], dtype)
            if first == 0 and row < M:
                for s in T.unroll(K // OUT):
                    for v in T.vectorized(OUT):
                        weights[row, s * OUT + v] = results[s * OUT + v]
                    for v in T.vectorized(OUT):
                        indices[row, s * OUT + v] = columns[s * OUT + v]

    return gating


@tilelang.jit
def columns_kernel(K: int, ROWS: int, BLOCK: int, VEC: int, threads: int, INSIDE: bool):
    """One block, ROWS tokens of fp32: BLOCK >= E, and VEC divides E. INSIDE: BLOCK is E, which is compiled in then."""
    M, E = T.dynamic("M"), BLOCK if INSIDE else T.dynamic("E")
    GROUP = threads // ROWS
    layout = T.Fragment((ROWS, BLOCK), forward_fn=row_layout(ROWS, VEC, threads))
    winners_layout = T.Fragment((K, ROWS), forward_fn=lambda s, i, copy: (i * GROUP + copy, s), replicate=GROUP)

    @T.prim_func
    def gating(
        logits: T.Tensor((M, E), T.float32), weights: T.Tensor((M, K), T.float32), indices: T.Tensor((M, K), T.int32)
    ):
        with T.Kernel(T.ceildiv(M, ROWS), threads=threads) as block:
            if not INSIDE:
                T.assume(E % VEC == 0)  # so that every row starts at a multiple of VEC, and loads are VEC wide
            x = T.alloc_fragment((ROWS, BLOCK), T.float32)
            found = T.alloc_fragment((ROWS, BLOCK), T.int32)
            winner = T.alloc_fragment((ROWS,), T.float32)
            column = T.alloc_fragment((ROWS,), T.int32)
            columns = T.alloc_fragment((K, ROWS), T.int32)
            values = T.alloc_fragment((K, ROWS), T.float32)
            largest = T.alloc_fragment((ROWS,), T.float32)
            total = T.alloc_fragment((ROWS,), T.float32)
            T.annotate_layout({x: layout, found: layout})
            T.annotate_layout({columns: winners_layout, values: winners_layout})
            # Padding and what has won is NaN, which no maximum takes and no number equals.
            for i, j in T.Parallel(ROWS, BLOCK):
                x[i, j] = T.if_then_else(
                    block * ROWS + i < M and j < E, logits[block * ROWS + i, j], T.float32(float("nan"))
                )
            for s in T.unroll(K):
                T.reduce_max(x, winner, dim=1)
                for i, j in T.Parallel(ROWS, BLOCK):
                    found[i, j] = T.if_then_else(x[i, j] == winner[i], j, E)
                T.reduce_min(found, column, dim=1)
                for i in T.Parallel(ROWS):
                    values[s, i] = winner[i]
                    columns[s, i] = column[i]
                for i, j in T.Parallel(ROWS, BLOCK):
                    x[i, j] = T.if_then_else(j == column[i], T.float32(float("nan")), x[i, j])
            for i in T.Parallel(ROWS):
                largest[i] = values[0, i]
            T.clear(total)
            for s in T.unroll(K):
                for i in T.Parallel(ROWS):
                    values[s, i] = T.exp2((values[s, i] - largest[i]) * LOG2E)
                    total[i] += values[s, i]
            for i in T.Parallel(ROWS):
                total[i] = T.fast_rcp(total[i])
            for s in T.unroll(K):
                for i in T.Parallel(ROWS):
                    if block * ROWS + i < M:
                        weights[block * ROWS + i, s] = values[s, i] * total[i]
                        indices[block * ROWS + i, s] = columns[s, i]

    return gating


def run(logits: torch.Tensor, M: int, E: int, k: int, *, ROWS: int, threads: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights [M, k] in the dtype of logits [M, E], and indices [M, k] int32, in descending order."""
    weights = torch.empty((M, k), dtype=logits.dtype, device=logits.device)
    indices = torch.empty((M, k), dtype=torch.int32, device=logits.device)
    vec = vector_width(E, logits.element_size())
    group = threads // ROWS
    if logits.element_size() == 2:
        steps = -(-E // (group * 8))
        pairs = vec > 1 and logits.data_ptr() % 16 == 0
        kernel = keys_kernel(logits.dtype, k, group, steps, pairs, threads, steps * group * 8 == E)
        logits = logits.view(torch.int32 if pairs else torch.int16)
    else:
        step = group * vec  # one access per thread
        block = -(-E // step) * step
        kernel = columns_kernel(k, ROWS, block, vec, threads, block == E)
    kernel(logits, weights, indices)
    return weights, indices


def _config(ROWS: int, group: int) -> Config:
    return {"ROWS": ROWS, "threads": ROWS * group}


def default(case: Case) -> Config:
    # Some two blocks for each of 132 SMs where there are so many tokens; else more threads per token. More tokens: fewer
    # threads for each, which all repeat its last steps. fp32 has the registers for 16 of 128 logits per thread.
    tokens = case["M"] // 264
    if case.dtype_size == 2:
        threads, group = 64, 4 if tokens >= 32 else 8 if tokens >= 16 else 16
    else:
        threads, group = (128, 8) if tokens >= 16 else (64, 16)
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
