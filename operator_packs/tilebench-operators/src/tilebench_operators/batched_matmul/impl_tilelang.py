"""Batched matrix multiplication in TileLang: a block computes output tiles of a batch entry; TMA loads and stores.

The operands travel from the L2 cache to the multiprocessors once per tile that needs them, and at these sizes that road
(about 7 TB/s) is what limits: a large tile travels least. But the tiles come in rounds, one or two to a multiprocessor,
and a round that is hardly filled costs as much as a full one. `default` weighs the two; non-powers of two (160, 192, 224)
leave least outside the matrix. Each warp group has whole rows of the tile, so that it reads only its own part of a. In 16
bits, blocks of large tiles stay and walk over matrices, so that the next tile's loads start during this tile's epilogue.

WGMMA wants operands of TF32 with k innermost in shared memory, which b [K, N] has not. But its left operand may come from
registers, in any order: for fp32, c's transpose is computed, bᵀ·aᵀ, and b's tile turns on its way from shared memory to
the registers. Alternatively (TRANSPOSE_B) a first launch writes b's transpose, inside the call.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Device, Kernel, multiprocessors
from tilelang.layout import make_swizzled_layout

from tilebench_operators._tilelang_matmul import (
    LOADER_REGISTERS,
    OPERAND,
    transpose_kernel,
    unaligned_kernel,
    worker_registers,
)
from tilebench_operators.batched_matmul._tiles import MULTIPROCESSORS, estimate_us


@tilelang.jit
def bmm_kernel(dtype: torch.dtype, BM: int, BN: int, BK: int, per_sm: int, stages: int, threads: int, turned: bool):
    """c[e] = a[e]·b[e]; a [BATCH, M, K], c [BATCH, M, N], b [BATCH, K, N] or, if turned, [BATCH, N, K].

    Loads beyond an edge give zeros, stores are dropped, within each matrix. Tiles of one matrix are neighbours in time.
    """
    BATCH, M, N, K = T.dynamic("BATCH"), T.dynamic("M"), T.dynamic("N"), T.dynamic("K")
    operand = OPERAND.get(dtype, dtype)
    registers = worker_registers(threads, per_sm)
    policy = T.GemmWarpPolicy.FullRow if threads > 128 else T.GemmWarpPolicy.Square

    @T.prim_func
    def bmm(
        a: T.Tensor((BATCH, M, K), operand),
        b: T.Tensor((BATCH, N, K) if turned else (BATCH, K, N), operand),
        c: T.Tensor((BATCH, M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), BATCH, threads=threads) as (bn, bm, entry):
            T.annotate_min_blocks_per_sm(per_sm)
            T.annotate_producer_reg_dealloc(LOADER_REGISTERS)
            T.annotate_consumer_reg_alloc(registers)
            a_tile = T.alloc_shared((BM, BK), operand)
            b_tile = T.alloc_shared((BN, BK) if turned else (BK, BN), operand)
            c_tile = T.alloc_shared((BM, BN), dtype)
            total = T.alloc_fragment((BM, BN), T.float32)
            T.clear(total)
            for step in T.Pipelined(T.ceildiv(K, BK), num_stages=stages):
                T.copy(a[entry, bm * BM, step * BK], a_tile)
                if turned:
                    T.copy(b[entry, bn * BN, step * BK], b_tile)
                else:
                    T.copy(b[entry, step * BK, bn * BN], b_tile)
                T.gemm(a_tile, b_tile, total, transpose_B=turned, policy=policy)
            # Through shared memory, so that the tile leaves by TMA, which drops what lies outside.
            T.copy(total, c_tile)
            T.copy(c_tile, c[entry, bm * BM, bn * BN])

    return bmm


@tilelang.jit
def stay_kernel(dtype: torch.dtype, BM: int, BN: int, BK: int, stages: int, threads: int):
    """The same for 16 bits, where a block, alone on its multiprocessor, computes one tile of every groups-th matrix.

    The warps that load run ahead into the next matrix as far as the stages go, so the tile of c has memory of its own. That
    a block's place in the matrix never changes spares the one thread that starts the loads divisions in every step, which
    would take longer than the products of the step.
    """
    BATCH, M, N, K = T.dynamic("BATCH"), T.dynamic("M"), T.dynamic("N"), T.dynamic("K")

    @T.prim_func
    def bmm_stay(
        a: T.Tensor((BATCH, M, K), dtype),
        b: T.Tensor((BATCH, K, N), dtype),
        c: T.Tensor((BATCH, M, N), dtype),
        groups: T.int32,
    ):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), groups, threads=threads) as (bn, bm, group):
            T.no_set_max_nreg()  # warps would change their number of registers once per tile; an equal part is enough
            T.assume(groups > 0)
            a_tile = T.alloc_shared((BM, BK), dtype)
            b_tile = T.alloc_shared((BK, BN), dtype)
            c_tile = T.alloc_shared((BM, BN), dtype)
            total = T.alloc_fragment((BM, BN), T.float32)
            for turn in T.serial(T.ceildiv(BATCH - group, groups)):
                T.clear(total)
                for step in T.Pipelined(T.ceildiv(K, BK), num_stages=stages):
                    T.copy(a[turn * groups + group, bm * BM, step * BK], a_tile)
                    T.copy(b[turn * groups + group, step * BK, bn * BN], b_tile)
                    T.gemm(a_tile, b_tile, total, policy=T.GemmWarpPolicy.FullRow)
                T.copy(total, c_tile)
                T.copy(c_tile, c[turn * groups + group, bm * BM, bn * BN])

    return bmm_stay


@tilelang.jit
def turned_kernel(BM: int, BN: int, BK: int, per_sm: int, stages: int, threads: int):
    """The same for fp32, computed as cᵀ = bᵀ·aᵀ; a [BATCH, M, K], b [BATCH, K, N], c [BATCH, M, N].

    A tile has 64 columns for each warp group or, in two products, twice as many: TileLang 0.1.15 places the rows of a
    left operand in registers otherwise than those of the result if a warp group has more than 64 of one product.
    """
    ROWS = threads // 2  # of one product
    TWICE = BN == 2 * ROWS
    BATCH, M, N, K = T.dynamic("BATCH"), T.dynamic("M"), T.dynamic("N"), T.dynamic("K")
    registers = worker_registers(threads, per_sm)

    @T.prim_func
    def bmm_turned(
        a: T.Tensor((BATCH, M, K), T.tfloat32),
        b: T.Tensor((BATCH, K, N), T.tfloat32),
        c: T.Tensor((BATCH, M, N), T.float32),
    ):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), BATCH, threads=threads) as (bn, bm, entry):
            T.annotate_min_blocks_per_sm(per_sm)
            T.annotate_producer_reg_dealloc(LOADER_REGISTERS)
            T.annotate_consumer_reg_alloc(registers)
            a_tile = T.alloc_shared((BM, BK), T.tfloat32)
            b_tile = T.alloc_shared((BK, BN), T.tfloat32)
            c_tile = T.alloc_shared((BM, BN), T.float32)
            # The threads of a warp read and write several rows of a column: swizzled, these lie in different banks.
            T.annotate_layout({b_tile: make_swizzled_layout(b_tile), c_tile: make_swizzled_layout(c_tile)})
            left = T.alloc_fragment((ROWS, BK), T.tfloat32)
            total = T.alloc_fragment((ROWS, BM), T.float32)
            T.clear(total)
            if TWICE:
                second = T.alloc_fragment((ROWS, BM), T.float32)
                T.clear(second)
            for step in T.Pipelined(T.ceildiv(K, BK), num_stages=stages):
                T.copy(a[entry, bm * BM, step * BK], a_tile)
                T.copy(b[entry, step * BK, bn * BN], b_tile)
                for n, k in T.Parallel(ROWS, BK):
                    left[n, k] = b_tile[k, n]
                T.gemm(left, a_tile, total, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                if TWICE:
                    for n, k in T.Parallel(ROWS, BK):
                        left[n, k] = b_tile[k, ROWS + n]
                    T.gemm(left, a_tile, second, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            for n, m in T.Parallel(ROWS, BM):
                c_tile[m, n] = total[n, m]
                if TWICE:
                    c_tile[m, ROWS + n] = second[n, m]
            T.copy(c_tile, c[entry, bm * BM, bn * BN])

    return bmm_turned


def run(
    a: torch.Tensor, b: torch.Tensor, BATCH: int, M: int, N: int, K: int, *, BM: int, BN: int, BK: int,
    TRANSPOSE_B: bool, STAY: bool, PER_SM: int, stages: int, threads: int,
) -> torch.Tensor:  # fmt: skip
    """Return c [BATCH·M·N] of a [BATCH·M·K] and b [BATCH·K·N], in their dtype."""
    c = torch.empty(BATCH * M * N, dtype=a.dtype, device=a.device)
    a_view, b_view, c_view = a.view(BATCH, M, K), b.view(BATCH, K, N), c.view(BATCH, M, N)
    size = a.element_size()
    if K * size % 16 or N * size % 16:
        unaligned_kernel(a.dtype, 64, 64, 32, 128)(a_view, b_view, c_view)
        return c
    if TRANSPOSE_B:
        transposed = torch.empty((BATCH, N, K), dtype=b.dtype, device=b.device)
        transpose_kernel(b.dtype, 64, 256)(b_view, transposed)
        b_view = transposed
    if STAY:
        groups = max(1, min(BATCH, multiprocessors(a.device) // (-(-M // BM) * -(-N // BN))))
        stay_kernel(a.dtype, BM, BN, BK, stages, threads)(a_view, b_view, c_view, groups)
    elif size == 4 and not TRANSPOSE_B and BN >= 64:
        turned_kernel(BM, BN, BK, PER_SM, stages, threads)(a_view, b_view, c_view)
    else:
        bmm_kernel(a.dtype, BM, BN, BK, PER_SM, stages, threads, TRANSPOSE_B)(a_view, b_view, c_view)
    return c


def _config(
    BM: int, BN: int, BK: int, per_sm: int, stages: int, threads: int, transpose: bool = False, stay: bool = False
) -> Config:
    return {
        "BM": BM, "BN": BN, "BK": BK, "TRANSPOSE_B": transpose, "STAY": stay, "PER_SM": per_sm, "stages": stages,
        "threads": threads,
    }  # fmt: skip


TILES = [  # BM, BN, threads, per_sm, stages
    (64, 64, 128, 2, 4), (64, 160, 128, 2, 3), (64, 192, 128, 2, 3), (128, 128, 256, 1, 4), (128, 160, 128, 2, 3),
    (192, 160, 384, 1, 4), (192, 192, 384, 1, 4), (128, 224, 256, 1, 4), (128, 256, 256, 1, 4), (256, 160, 256, 1, 4),
]  # fmt: skip


def tiles(case: Case) -> list[tuple[int, int, int, int, int]]:
    """TILES; of fp32, which is computed transposed, the warp groups divide the columns."""
    return [(bn, bm, *rest) for bm, bn, *rest in TILES] if case.dtype == "fp32" else TILES


STAY_STAGES = 3


def stays(case: Case, BM: int, BN: int, per_sm: int) -> bool:
    """Whether blocks stay for several matrices: in 16 bits, if that takes no more rounds, and c's tile fits beside the stages."""
    m = case["M"]
    count = -(-m // BM) * -(-case.params.get("N", m) // BN)
    rounds = -(-case["BATCH"] * count // MULTIPROCESSORS)
    same = count <= MULTIPROCESSORS and -(-case["BATCH"] // (MULTIPROCESSORS // count)) == rounds
    fits = STAY_STAGES * (BM + BN) * 128 + BM * BN * 2 <= 225_000
    return case.dtype != "fp32" and per_sm == 1 and rounds > 1 and same and fits


def pause_us(case: Case, BM: int, BN: int, per_sm: int) -> float:
    """Time between rounds; two blocks that share a multiprocessor fill each other's pauses."""
    if case.dtype == "fp32" or per_sm > 1:
        return 1.5
    return 1.0 if stays(case, BM, BN, per_sm) else 3.0


def default(case: Case) -> Config:
    depth = 128 // case.dtype_size  # one row of a tile fills TMA's widest swizzle, 128 bytes
    if case["M"] <= 32:
        return _config(32, 32, 32, 4, 2, 128)
    BM, BN, threads, per_sm, stages = min(
        tiles(case), key=lambda tile: estimate_us(case, *tile[:2], tile[3], pause_us(case, *tile[:2], tile[3]))
    )
    stay = stays(case, BM, BN, per_sm)
    return _config(BM, BN, depth, per_sm, STAY_STAGES if stay else stages, threads, False, stay)


def space(case: Case) -> list[Config]:
    depth = 128 // case.dtype_size
    small = [default(case)] if case["M"] <= 32 else []
    more = [(128, 64, 128, 2, 3), (128, 128, 128, 2, 3)]
    if case.dtype != "fp32":
        more += [(64, 128, 128, 2, 3), (128, 192, 256, 1, 4), (256, 128, 256, 1, 4)]
        return (
            small
            + [
                _config(bm, bn, depth, per_sm, deep, threads)
                for bm, bn, threads, per_sm, stages in TILES + more
                for deep in (2, stages)
            ]
            + [
                _config(bm, bn, depth, per_sm, STAY_STAGES, threads, False, True)
                for bm, bn, threads, per_sm, _ in TILES + more
                if stays(case, bm, bn, per_sm)
            ]
        )
    return small + [
        _config(bm, bn, depth, per_sm, stages, threads, transpose)
        for bm, bn, threads, per_sm, stages in tiles(case) + more
        for transpose in (False, True)
        if (bm % (threads // 2) == 0 if transpose else bn in (threads // 2, threads))  # 64 for each warp group
    ]


def unsupported(case: Case, device: Device) -> str | None:
    if device.capability < (9, 0):
        return "TileLang 0.1.15 pipelines a loop of unknown length only where there is TMA (compute capability 9.0)"
    return None


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
