"""What matrix kernels share in TileLang: registers of specialised warps, b's transposition, and rows TMA can't address."""

import tilelang
import tilelang.language as T
import torch

# What operands are to T.gemm: float32 as such would be multiplied by Ampere's instructions, on Hopper too.
OPERAND = {torch.float32: T.tfloat32}

LOADER_THREADS, LOADER_REGISTERS = 128, 24  # of the warp group that the compiler adds to load by TMA


def worker_registers(threads: int, per_sm: int) -> int:
    """Registers for each of the `threads` of a block that compute, `per_sm` such blocks to a multiprocessor.

    For T.annotate_consumer_reg_alloc. By itself the compiler hands out 240, which only one block can have: two would
    wait for each other's registers forever. At its start a thread has an equal part of the 65536; counts are multiples
    of 8.
    """
    everyone = threads + LOADER_THREADS
    pool = min(255, 65536 // (per_sm * everyone)) // 8 * 8 * everyone
    return min(240, (pool - LOADER_THREADS * LOADER_REGISTERS) // threads // 8 * 8)


@tilelang.jit
def transpose_kernel(dtype: torch.dtype, TILE: int, threads: int):
    """t[e] = b[e] transposed; b [BATCH, K, N], t [BATCH, N, K]. A tile turns around in shared memory.

    Hopper's tensor cores read TF32 operands from shared memory only with k innermost, but b has n innermost.
    """
    BATCH, K, N = T.dynamic("BATCH"), T.dynamic("K"), T.dynamic("N")

    @T.prim_func
    def transpose(b: T.Tensor((BATCH, K, N), dtype), t: T.Tensor((BATCH, N, K), dtype)):
        with T.Kernel(T.ceildiv(N, TILE), T.ceildiv(K, TILE), BATCH, threads=threads) as (bn, bk, entry):
            tile = T.alloc_shared((TILE, TILE + 1), dtype)  # padded: a column's elements lie in different banks
            for k, n in T.Parallel(TILE, TILE):
                if bk * TILE + k < K and bn * TILE + n < N:
                    tile[k, n] = b[entry, bk * TILE + k, bn * TILE + n]
            for n, k in T.Parallel(TILE, TILE):
                if bk * TILE + k < K and bn * TILE + n < N:
                    t[entry, bn * TILE + n, bk * TILE + k] = tile[k, n]

    return transpose


@tilelang.jit
def unaligned_kernel(dtype: torch.dtype, BM: int, BN: int, BK: int, threads: int):
    """c[e] = a[e]·b[e] for rows whose pitch is no multiple of 16 bytes; a [BATCH, M, K], b [BATCH, K, N], c [BATCH, M, N].

    Without TMA, elements are loaded one by one: this is for odd sizes, not for speed.
    """
    BATCH, M, N, K = T.dynamic("BATCH"), T.dynamic("M"), T.dynamic("N"), T.dynamic("K")

    @T.prim_func
    def unaligned(
        a: T.Tensor((BATCH, M, K), dtype), b: T.Tensor((BATCH, K, N), dtype), c: T.Tensor((BATCH, M, N), dtype)
    ):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), BATCH, threads=threads) as (bn, bm, entry):
            a_tile = T.alloc_shared((BM, BK), dtype)
            b_tile = T.alloc_shared((BK, BN), dtype)
            total = T.alloc_fragment((BM, BN), T.float32)
            T.clear(total)
            for step in T.serial(T.ceildiv(K, BK)):
                T.copy(a[entry, bm * BM, step * BK], a_tile, disable_tma=True)
                T.copy(b[entry, step * BK, bn * BN], b_tile, disable_tma=True)
                T.gemm(a_tile, b_tile, total)
            T.copy(total, c[entry, bm * BM, bn * BN], disable_tma=True)

    return unaligned
