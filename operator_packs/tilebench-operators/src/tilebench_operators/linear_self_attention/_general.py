"""Linear self-attention in TileLang in three launches, for every width and length.

1. sᵀ = vᵀ·φ(k) and z, the column sums of φ(k): M is split over blocks, each sums its rows apart;
2. the parts are added;
3. o = φ(q)·s / (φ(q)·z + eps), the denominator beside the product.

All three are a few microseconds long and mostly latency, so each starts while the one before it still runs
(programmatic dependent launch), and waits where it needs its results: the third loads q before. Only where a wide head has
more blocks in the third than multiprocessors does it follow the second, and loads q piece by piece while it multiplies.

Hopper's tensor cores take TF32 operands from shared memory only with the reduction axis innermost. So s is stored transposed,
as the third launch wants it. In the first launch that axis is outermost in both operands, which 16-bit types may have:
a number is split into two bfloat16, high + low, 16 bits of mantissa where TF32 has 11, and three products of halves
take 1.5 times as long as one in TF32 but need no transposition. D is a constant of the kernels.
"""

import tilelang
import tilelang.language as T
import torch
from tilelang.layout import make_swizzled_layout

from tilebench_operators._tilelang_matmul import LOADER_REGISTERS, worker_registers

LOG2_E = 1.4426950408889634
MULTIPROCESSORS = 132  # of the H200
PER_SM = 2  # blocks on a multiprocessor, so that one computes while another waits
LANES = 32  # columns of the parts that a block of sum_kernel adds up
GROUPS = 8  # that share the splits


def phi(x):
    """x + 1 for x > 0, else e^x, without a branch, which would keep loops from being vectorized."""
    return T.max(x, 0) + T.exp2(T.min(x, 0) * LOG2_E)


@tilelang.jit
def parts_kernel(D: int, TI: int, TJ: int, ROWS: int, stages: int, threads: int):
    """parts [splits, D + 1, D]: sᵀ [D, D], then z [D], of one split's chunks·ROWS rows of k, v [M, D].

    One TJ × TI tile of a state per block.
    """
    M, splits = T.dynamic("M"), T.dynamic("splits")
    aligned = D % 4 == 0  # rows that TMA can address: their pitch is a multiple of 16 bytes

    @T.prim_func
    def attention_parts(
        k: T.Tensor((M, D), T.float32),
        v: T.Tensor((M, D), T.float32),
        parts: T.Tensor((splits, D + 1, D), T.float32),
        chunks: T.int32,
    ):
        with T.Kernel(T.ceildiv(D, TJ), T.ceildiv(D, TI), splits, threads=threads) as (bj, bi, split):
            T.pdl_trigger()
            T.annotate_min_blocks_per_sm(PER_SM)
            T.annotate_producer_reg_dealloc(LOADER_REGISTERS)
            T.annotate_consumer_reg_alloc(worker_registers(threads, PER_SM))
            k_tile = T.alloc_shared((ROWS, TI), T.float32)
            v_tile = T.alloc_shared((ROWS, TJ), T.float32)
            k_high, k_low = T.alloc_shared((ROWS, TI), T.bfloat16), T.alloc_shared((ROWS, TI), T.bfloat16)
            v_high, v_low = T.alloc_shared((ROWS, TJ), T.bfloat16), T.alloc_shared((ROWS, TJ), T.bfloat16)
            features = T.alloc_fragment((ROWS, TI), T.float32)
            values = T.alloc_fragment((ROWS, TJ), T.float32)
            state = T.alloc_fragment((TJ, TI), T.float32)
            sums = T.alloc_fragment((ROWS, TI), T.float32)  # over the chunks; over the rows once, at the end
            sums_tile = T.alloc_shared((ROWS, TI), T.float32)
            total = T.alloc_fragment((TI,), T.float32)
            T.clear(state)
            T.clear(sums)
            steps = T.min(chunks, T.ceildiv(M, ROWS) - split * chunks)
            for step in T.Pipelined(steps, num_stages=stages if aligned else 0):
                T.copy(k[(split * chunks + step) * ROWS, bi * TI], k_tile, disable_tma=not aligned)
                T.copy(v[(split * chunks + step) * ROWS, bj * TJ], v_tile, disable_tma=not aligned)
                T.copy(v_tile, values)
                for row, i in T.Parallel(ROWS, TI):
                    features[row, i] = phi(k_tile[row, i])
                for row, i in T.Parallel(ROWS, TI):
                    sums[row, i] += features[row, i]
                for row, i in T.Parallel(ROWS, TI):
                    k_high[row, i] = T.cast(features[row, i], T.bfloat16)
                    k_low[row, i] = T.cast(
                        features[row, i] - T.cast(T.cast(features[row, i], T.bfloat16), T.float32), T.bfloat16
                    )
                for row, j in T.Parallel(ROWS, TJ):
                    v_high[row, j] = T.cast(values[row, j], T.bfloat16)
                    v_low[row, j] = T.cast(
                        values[row, j] - T.cast(T.cast(values[row, j], T.bfloat16), T.float32), T.bfloat16
                    )
                T.gemm(v_high, k_low, state, transpose_A=True)
                T.gemm(v_low, k_high, state, transpose_A=True)
                T.gemm(v_high, k_high, state, transpose_A=True)
            for j, i in T.Parallel(TJ, TI):
                if bi * TI + i < D and bj * TJ + j < D:
                    parts[split, bj * TJ + j, bi * TI + i] = state[j, i]
            if bj == 0:
                T.copy(sums, sums_tile)
                T.clear(total)
                for row in T.serial(ROWS):
                    for i in T.Parallel(TI):
                        total[i] += sums_tile[row, i]
                # Rows beyond M are zero; φ(0) is 1. In s they met the zeros of v.
                padding = T.max((split * chunks + steps) * ROWS - M, 0)
                for i in T.Parallel(TI):
                    if bi * TI + i < D:
                        parts[split, D, bi * TI + i] = total[i] - T.cast(padding, T.float32)

    return attention_parts


@tilelang.jit
def sum_kernel(MOST: int):
    """total[x] = Σ_split parts[split, x]; parts [splits, n], total [n], splits <= MOST."""
    splits, n = T.dynamic("splits"), T.dynamic("n")

    @T.prim_func
    def attention_sum(parts: T.Tensor((splits, n), T.float32), total: T.Tensor((n,), T.float32)):
        with T.Kernel(T.ceildiv(n, LANES), threads=LANES * GROUPS) as block:
            T.pdl_trigger()
            T.pdl_sync()
            thread = T.get_thread_binding()
            x = block * LANES + thread % LANES
            group = thread // LANES
            shared = T.alloc_shared((GROUPS, LANES), T.float32)
            mine = T.alloc_var(T.float32, init=0.0)
            for i in T.unroll(T.ceildiv(MOST, GROUPS)):
                mine = mine + T.if_then_else(i * GROUPS + group < splits and x < n, parts[i * GROUPS + group, x], 0)
            shared[group, thread % LANES] = mine
            T.sync_threads()
            if group == 0 and x < n:
                for i in T.unroll(1, GROUPS):
                    mine = mine + shared[i, thread % LANES]
                total[x] = mine

    return attention_sum


@tilelang.jit
def output_kernel(D: int, BM: int, BN: int, BK: int, stages: int, threads: int, early: bool):
    """o [M, D]; q [M, D], state [D + 1, D] is sᵀ, and z [D] in the last row. One BM × BN tile of o per block.

    Early blocks start, and load all of their rows of q, while s is still computed.
    """
    M = T.dynamic("M")
    aligned = D % 4 == 0
    DEPTH = T.ceildiv(D, BK) * BK

    @T.prim_func
    def attention_output(
        q: T.Tensor((M, D), T.float32),
        state: T.Tensor((D + 1, D), T.tfloat32),
        z: T.Tensor((D,), T.float32),
        o: T.Tensor((M, D), T.float32),
        eps: T.float32,
    ):
        # The tiles of the same rows of q side by side, so that q comes from memory once.
        with T.Kernel(T.ceildiv(D, BN), T.ceildiv(M, BM), threads=threads) as (bn, bm):
            T.annotate_min_blocks_per_sm(PER_SM)
            T.annotate_producer_reg_dealloc(LOADER_REGISTERS)
            T.annotate_consumer_reg_alloc(worker_registers(threads, PER_SM))
            q_tile = T.alloc_shared((BM, DEPTH if early else BK), T.float32)
            T.annotate_layout({q_tile: make_swizzled_layout(q_tile)})
            state_tile = T.alloc_shared((BN, BK), T.tfloat32)
            weights = T.alloc_shared((DEPTH,), T.float32)
            features = T.alloc_fragment((BM, BK), T.float32)
            operand = T.alloc_fragment((BM, BK), T.tfloat32)
            numerator = T.alloc_fragment((BM, BN), T.float32)
            denominator = T.alloc_fragment((BM,), T.float32)
            part = T.alloc_fragment((BM,), T.float32)
            if early:
                T.copy(q[bm * BM, 0], q_tile, disable_tma=not aligned)
                T.pdl_sync()
            for d in T.Parallel(DEPTH):
                weights[d] = T.if_then_else(d < D, z[d], 0)
            T.clear(numerator)
            T.fill(denominator, eps)
            for step in T.Pipelined(T.ceildiv(D, BK), num_stages=stages if aligned else 0):
                if not early:
                    T.copy(q[bm * BM, step * BK], q_tile, disable_tma=not aligned)
                T.copy(state[bn * BN, step * BK], state_tile, disable_tma=not aligned)
                for i, d in T.Parallel(BM, BK):  # padding needs no care: s and z load as zeros beyond D
                    features[i, d] = phi(q_tile[i, step * BK + d if early else d])
                T.copy(features, operand)
                T.gemm(operand, state_tile, numerator, transpose_B=True)
                for i, d in T.Parallel(BM, BK):
                    features[i, d] *= weights[step * BK + d]
                T.reduce_sum(features, part, dim=1)
                for i in T.Parallel(BM):
                    denominator[i] += part[i]
            for i in T.Parallel(BM):
                denominator[i] = 1 / denominator[i]
            for i, j in T.Parallel(BM, BN):
                numerator[i, j] *= denominator[i]
            T.copy(numerator, o[bm * BM, bn * BN], disable_tma=True)

    return attention_output


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, eps: float, *, TI: int, TJ: int, ROWS: int, SPLITS: int,
    BM: int, BN: int, stages: int, threads: int,
) -> torch.Tensor:  # fmt: skip
    """Return o [M, D] of q, k, v [M, D]. At most SPLITS blocks share the rows of one tile of s."""
    M, D = q.shape
    chunks = -(-M // (SPLITS * ROWS))  # of ROWS rows, in one split
    splits = -(-M // (chunks * ROWS))  # so that none is empty
    parts = torch.empty([splits, D + 1, D], dtype=torch.float32, device=q.device)
    state = torch.empty([D + 1, D], dtype=torch.float32, device=q.device)
    o = torch.empty_like(q)
    parts_kernel(D, TI, TJ, ROWS, stages, threads)(k, v, parts, chunks)
    sum_kernel(power(splits))(parts.view(splits, -1), state.view(-1))
    alone = 128 < D <= 512 and -(-D // BN) * -(-M // BM) <= MULTIPROCESSORS
    # Early blocks take the first place that becomes free. If they shall have a multiprocessor each, they must be so large
    # that no two fit on the one that finishes first.
    output_stages = 4 if alone else stages
    output_kernel(D, BM, BN, 32, output_stages, threads, D <= 128 or alone)(q, state, state[D], o, eps)
    return o


def power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()


def config(
    M: int, D: int, TI: int, TJ: int, ROWS: int, blocks: int, BM: int, BN: int, stages: int, threads: int
) -> dict[str, int]:
    """SPLITS gives about `blocks` blocks in the first launch, each with at least two chunks of ROWS rows."""
    tiles = -(-D // TI) * -(-D // TJ)
    splits = max(1, min(128, blocks // tiles, -(-M // (2 * ROWS))))
    return {
        "TI": TI, "TJ": TJ, "ROWS": ROWS, "SPLITS": splits, "BM": BM, "BN": BN, "stages": stages, "threads": threads
    }  # fmt: skip


def default(M: int, D: int) -> dict[str, int]:
    """The arguments of `attention` for a size."""
    width = min(64, max(32, power(D)))
    wide = D > 128
    BN = 128 if wide else width
    # The widest tile with which 132 multiprocessors have one each. A narrow head is not cut: φ(q) would be taken twice.
    while D > 64 and BN > 32 and -(-M // 64) * -(-D // BN) < 120:
        BN //= 2
    # Two blocks for each of 132 multiprocessors: one multiplies while the other computes φ and splits numbers. Their number
    # decides what the second launch reads, so narrow heads, whose tiles of s hold little work, have one.
    blocks = 264 if D >= 64 else 132
    return config(M, D, width, 128 if wide else 64, 32, blocks, 64, BN, 2, 128)


def space(M: int, D: int) -> list[dict[str, int]]:
    """Arguments of `attention` worth a search, the default first."""
    widest = min(128, max(32, power(D)))
    narrow = min(64, widest)
    return [default(M, D)] + [
        config(M, D, narrow, tj, rows, blocks, bm, bn, stages, 128)
        for tj in sorted({64, max(64, widest)})
        for rows in (32, 64)
        for blocks in (132, 264)
        for bm, bn in sorted({(64, narrow), (64, widest)})
        for stages in (2, 3)
    ]
