"""int8 times 2-bit matrix multiplication in TileLang: unpack w once, then an int8 product by TMA and WGMMA.

Hopper's int8 tensor cores read w from shared memory only with k innermost, while the packed matrix has n innermost.
Unpacking inside the product would therefore shuffle every byte of w once per tile row (16 times for 2048 rows); here
one small kernel unpacks and transposes into w [N, K] int8, inside the call, which mostly stays in the L2 cache.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Device, Kernel

from tilebench_operators._tilelang_order import tile_of


@tilelang.jit
def unpack_kernel(TILE: int, VEC: int, threads: int):
    """w[n, i, j] = ((packed[j, n] >> 2i) & 3) - 1; packed [QUARTER, N] uint8, w [N, 4, QUARTER] int8.

    A tile of bytes turns around in shared memory. VEC (4 or 1) divides QUARTER and N: four numbers are unpacked at once
    in the bytes of one register, and w is declared as [N, 4, QUARTER / VEC] words.
    """
    QUARTER, N = T.dynamic("QUARTER"), T.dynamic("N")
    WORD = T.int32 if VEC == 4 else T.int8
    ONES = 0x01010101 if VEC == 4 else 1  # 1 in every byte

    @T.prim_func
    def unpack(packed: T.Tensor((QUARTER, N), T.uint8), w: T.Tensor((N, 4, T.ceildiv(QUARTER, VEC)), WORD)):
        with T.Kernel(T.ceildiv(QUARTER, TILE), T.ceildiv(N, TILE), threads=threads) as (bj, bn):
            T.assume(N % VEC == 0)
            T.assume(QUARTER % VEC == 0)
            tile = T.alloc_shared((TILE, TILE + 4), T.uint8)  # padded: fewer words of a column share a bank
            for j, n in T.Parallel(TILE, TILE):
                if bj * TILE + j < QUARTER and bn * TILE + n < N:
                    tile[j, n] = packed[bj * TILE + j, bn * TILE + n]
            for n, j in T.Parallel(TILE, TILE // VEC):
                word = T.alloc_local((1,), T.uint32)
                word[0] = T.cast(tile[j * VEC, n], T.uint32)
                for v in T.unroll(1, VEC):
                    word[0] = word[0] | (T.cast(tile[j * VEC + v, n], T.uint32) << (8 * v))
                if bn * TILE + n < N and bj * TILE + j * VEC < QUARTER:
                    for i in T.unroll(4):
                        # Per byte: 0..3 plus 127 sets the top bit unless it was 0; flipped, that is the number minus 1.
                        field = (word[0] >> (2 * i)) & T.uint32(3 * ONES)
                        w[bn * TILE + n, i, bj * (TILE // VEC) + j] = T.cast(
                            (field + T.uint32(127 * ONES)) ^ T.uint32(128 * ONES), WORD
                        )

    return unpack


@tilelang.jit
def matmul_kernel(BM: int, BN: int, BK: int, stages: int, threads: int):
    """c = a·wᵀ; a [M, K] int8, w [N, K] int8, c [M, N] int32. Loads beyond the edge give zeros."""
    M, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")

    @T.prim_func
    def matmul_int8(
        a: T.Tensor((M, K), T.int8), w: T.Tensor((N, K), T.int8), c: T.Tensor((M, N), T.int32), group: T.int32
    ):
        with T.Kernel(T.ceildiv(M, BM) * T.ceildiv(N, BN), threads=threads) as block:
            T.assume(group > 0)
            T.assume(M > 0)
            T.assume(N > 0)
            bm, bn = tile_of(block, T.ceildiv(M, BM), T.ceildiv(N, BN), group)
            a_tile = T.alloc_shared((BM, BK), T.int8)
            w_tile = T.alloc_shared((BN, BK), T.int8)
            c_tile = T.alloc_shared((BM, BN), T.int32)
            total = T.alloc_fragment((BM, BN), T.int32)
            T.clear(total)
            for step in T.Pipelined(T.ceildiv(K, BK), num_stages=stages):
                T.copy(a[bm * BM, step * BK], a_tile)
                T.copy(w[bn * BN, step * BK], w_tile)
                T.gemm(a_tile, w_tile, total, transpose_B=True)
            # Through shared memory, so that the tile leaves by TMA, which drops what lies outside.
            T.copy(total, c_tile)
            T.copy(c_tile, c[bm * BM, bn * BN])

    return matmul_int8


@tilelang.jit
def unaligned_kernel(BM: int, BN: int, BK: int, threads: int):
    """The same product for rows that TMA can't address: their pitch is no multiple of 16 bytes."""
    M, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")

    @T.prim_func
    def matmul_int8_unaligned(a: T.Tensor((M, K), T.int8), w: T.Tensor((N, K), T.int8), c: T.Tensor((M, N), T.int32)):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=threads) as (bn, bm):
            a_tile = T.alloc_shared((BM, BK), T.int8)
            w_tile = T.alloc_shared((BN, BK), T.int8)
            total = T.alloc_fragment((BM, BN), T.int32)
            T.clear(total)
            for step in T.serial(T.ceildiv(K, BK)):
                T.copy(a[bm * BM, step * BK], a_tile, disable_tma=True)
                T.copy(w[bn * BN, step * BK], w_tile, disable_tma=True)
                T.gemm(a_tile, w_tile, total, transpose_B=True)
            T.copy(total, c[bm * BM, bn * BN], disable_tma=True)

    return matmul_int8_unaligned


def run(
    a: torch.Tensor, packed: torch.Tensor, *, BM: int, BN: int, BK: int, GROUP: int, stages: int, threads: int
) -> torch.Tensor:
    """Return c [M, N] int32; a [M, K] int8, packed [K/4, N] uint8."""
    (M, K), N = a.shape, packed.shape[1]
    w = torch.empty([N, K], dtype=torch.int8, device=a.device)
    c = torch.empty([M, N], dtype=torch.int32, device=a.device)
    if K % 16 or N % 4:
        unpack_kernel(128, 1, 256)(packed, w.view(N, 4, K // 4))
        unaligned_kernel(64, 64, 64, 128)(a, w, c)
    else:
        unpack_kernel(128, 4, 256)(packed, w.view(torch.int32).view(N, 4, K // 16))
        matmul_kernel(BM, BN, BK, stages, threads)(a, w, c, GROUP)
    return c


def _config(BM: int, BN: int, BK: int, stages: int, threads: int, GROUP: int = 8) -> Config:
    return {"BM": BM, "BN": BN, "BK": BK, "GROUP": GROUP, "stages": stages, "threads": threads}


def default(case: Case) -> Config:
    # 2048 × 2048 results are 128 tiles of 128 × 256: one for each of Hopper's 132 multiprocessors.
    return _config(128, 256, 128, 4, 256)


def space(case: Case) -> list[Config]:
    shapes = [
        (128, 128, 128, 4, 128), (128, 128, 128, 6, 256), (256, 128, 128, 4, 256), (128, 256, 128, 3, 256),
        (128, 256, 128, 4, 256), (128, 256, 64, 8, 256), (256, 128, 64, 8, 256), (128, 128, 256, 3, 256),
    ]  # fmt: skip
    return [_config(*shape, group) for shape in shapes for group in (4, 8, 16)]


def unsupported(case: Case, device: Device) -> str | None:
    if device.capability < (9, 0):
        return "TileLang 0.1.15 pipelines a loop of unknown length only where there is TMA (compute capability 9.0)"
    return None


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
