"""Batched matrix multiplication in TileLang: one block, one output tile of one batch entry; TMA loads and stores.

The matrices are small (32 to 640), so the tile size decides whether all multiprocessors have work, and a tile that just
covers an extent wastes least. Tiles of 64 rows and more are multiplied by WGMMA, which wants TF32 operands with k
innermost: from 128 on a first launch writes b's transpose, inside the call. Below it, and for smaller tiles, T.gemm
falls back to the instructions of Ampere, which at these sizes cost less than another pass over b.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Device, Kernel

from tilebench_operators._tilelang_matmul import (
    LOADER_REGISTERS,
    OPERAND,
    transpose_kernel,
    unaligned_kernel,
    worker_registers,
)


@tilelang.jit
def bmm_kernel(dtype: torch.dtype, BM: int, BN: int, BK: int, per_sm: int, stages: int, threads: int, turned: bool):
    """c[e] = a[e]·b[e]; a [BATCH, M, K], c [BATCH, M, N], b [BATCH, K, N] or, if turned, [BATCH, N, K].

    Loads beyond an edge give zeros, stores are dropped, within each matrix. Tiles of one matrix are neighbours in time.
    """
    BATCH, M, N, K = T.dynamic("BATCH"), T.dynamic("M"), T.dynamic("N"), T.dynamic("K")
    operand = OPERAND.get(dtype, dtype)
    registers = worker_registers(threads, per_sm)

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
                T.gemm(a_tile, b_tile, total, transpose_B=turned)
            # Through shared memory, so that the tile leaves by TMA, which drops what lies outside.
            T.copy(total, c_tile)
            T.copy(c_tile, c[entry, bm * BM, bn * BN])

    return bmm


def run(
    a: torch.Tensor, b: torch.Tensor, BATCH: int, M: int, N: int, K: int, *, BM: int, BN: int, BK: int,
    TRANSPOSE_B: bool, PER_SM: int, stages: int, threads: int,
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
    bmm_kernel(a.dtype, BM, BN, BK, PER_SM, stages, threads, TRANSPOSE_B)(a_view, b_view, c_view)
    return c


def _config(BM: int, BN: int, BK: int, per_sm: int, stages: int, threads: int, transpose: bool = False) -> Config:
    return {
        "BM": BM, "BN": BN, "BK": BK, "TRANSPOSE_B": transpose, "PER_SM": per_sm, "stages": stages, "threads": threads
    }  # fmt: skip


def default(case: Case) -> Config:
    size, depth = case["M"], 128 // case.dtype_size
    if size <= 32:
        return _config(32, 32, 32, 4, 2, 128)
    transpose = case.dtype == "fp32" and size >= 128
    if size <= 64 or size % 128 == 32:  # 128-wide tiles would waste up to half of their work
        return _config(64, 64, depth, 2, 4, 128, transpose)
    return _config(128, 128, depth, 2, 3, 128, transpose)  # 96 KB


def space(case: Case) -> list[Config]:
    depth = 128 // case.dtype_size  # one row of a tile fills TMA's widest swizzle, 128 bytes
    shapes = [
        (64, 64, 128, 2), (64, 128, 128, 2), (128, 64, 128, 2), (128, 128, 128, 2), (128, 128, 256, 1), (128, 256, 256, 1)
    ]  # fmt: skip
    small = [default(case)] if case["M"] <= 32 else []
    return small + [
        _config(bm, bn, depth, per_sm, stages, threads, transpose)
        for bm, bn, threads, per_sm in shapes
        for stages in (2, 3, 4)
        for transpose in ((False, True) if case.dtype == "fp32" else (False,))
    ]


def unsupported(case: Case, device: Device) -> str | None:
    if device.capability < (9, 0):
        return "TileLang 0.1.15 pipelines a loop of unknown length only where there is TMA (compute capability 9.0)"
    return None


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
