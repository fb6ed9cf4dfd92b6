"""Matrix multiplication in TileLang: a block computes one tile; TMA fills a ring of stages, WGMMA empties it.

On Hopper the compiler splits a pipelined block into a warp group that loads and others that multiply. Hopper's tensor
cores read fp8 and TF32 operands from shared memory only with k innermost, but b [K, N] has n innermost. Their left
operand, though, may come from registers, in any order: for fp32, c's transpose is computed, bᵀ·aᵀ, and b's tile turns on
its way to the registers. For fp8, whose bytes would have to be shuffled (and for fp32 with TRANSPOSE_B), a first kernel
writes b's transpose, inside the call. Otherwise T.gemm falls back to the instructions of Ampere.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Device, Kernel
from tilelang.layout import make_swizzled_layout

from tilebench_operators._tilelang_order import tile_of

# What operands are to T.gemm: float32 as such would be multiplied by Ampere's instructions, on Hopper too.
OPERAND = {torch.float32: T.tfloat32}


@tilelang.jit
def transpose_kernel(dtype: torch.dtype, TILE: int, threads: int):
    """t = b transposed; b [K, N], t [N, K]. A tile turns around in shared memory."""
    K, N = T.dynamic("K"), T.dynamic("N")
    VEC = 4 // dtype.itemsize  # elements of a word of a bank: fp8 is read and written four at a time

    @T.prim_func
    def transpose(b: T.Tensor((K, N), dtype), t: T.Tensor((N, K), dtype)):
        with T.Kernel(T.ceildiv(N, TILE), T.ceildiv(K, TILE), threads=threads) as (bn, bk):
            T.assume(N % VEC == 0)
            T.assume(K % VEC == 0)
            tile = T.alloc_shared((TILE, TILE + VEC), dtype)  # padded: a column's words lie in different banks
            for k, n in T.Parallel(TILE, TILE):
                if bk * TILE + k < K and bn * TILE + n < N:
                    tile[k, n] = b[bk * TILE + k, bn * TILE + n]
            for n, word in T.Parallel(TILE, TILE // VEC):
                column = T.alloc_local((VEC,), dtype)
                for v in T.unroll(VEC):
                    column[v] = tile[word * VEC + v, n]
                if bn * TILE + n < N and bk * TILE + word * VEC < K:
                    for v in T.vectorized(VEC):
                        t[bn * TILE + n, bk * TILE + word * VEC + v] = column[v]

    return transpose


@tilelang.jit
def matmul_kernel(dtype: torch.dtype, BM: int, BN: int, BK: int, stages: int, threads: int, turned: bool):
    """c = a·b; a [M, K], c [M, N], b [K, N] or, if turned, [N, K]. Loads beyond the edge give zeros."""
    M, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")
    operand = OPERAND.get(dtype, dtype)

    @T.prim_func
    def matmul(
        a: T.Tensor((M, K), operand),
        b: T.Tensor((N, K) if turned else (K, N), operand),
        c: T.Tensor((M, N), dtype),
        group: T.int32,
    ):
        with T.Kernel(T.ceildiv(M, BM) * T.ceildiv(N, BN), threads=threads) as block:
            T.assume(group > 0)
            T.assume(M > 0)
            T.assume(N > 0)
            bm, bn = tile_of(block, T.ceildiv(M, BM), T.ceildiv(N, BN), group)
            a_tile = T.alloc_shared((BM, BK), operand)
            b_tile = T.alloc_shared((BN, BK) if turned else (BK, BN), operand)
            c_tile = T.alloc_shared((BM, BN), dtype)
            total = T.alloc_fragment((BM, BN), T.float32)
            T.clear(total)
            for step in T.Pipelined(T.ceildiv(K, BK), num_stages=stages):
                T.copy(a[bm * BM, step * BK], a_tile)
                if turned:
                    T.copy(b[bn * BN, step * BK], b_tile)
                else:
                    T.copy(b[step * BK, bn * BN], b_tile)
                T.gemm(a_tile, b_tile, total, transpose_B=turned)
            # Through shared memory, so that the tile leaves by TMA, which drops what lies outside.
            T.copy(total, c_tile)
            T.copy(c_tile, c[bm * BM, bn * BN])

    return matmul


@tilelang.jit
def turned_kernel(BM: int, BN: int, BK: int, GROUP: int, stages: int, threads: int):
    """c = a·b for fp32, computed as cᵀ = bᵀ·aᵀ; a [M, K], b [K, N], c [M, N]. BN is 64 for each warp group.

    With more, TileLang 0.1.15 places the rows of a left operand in registers otherwise than those of the result.
    """
    M, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")

    @T.prim_func
    def matmul_turned(a: T.Tensor((M, K), T.tfloat32), b: T.Tensor((K, N), T.tfloat32), c: T.Tensor((M, N), T.float32)):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=threads) as (bn, bm):
            a_tile = T.alloc_shared((BM, BK), T.tfloat32)
            b_tile = T.alloc_shared((BK, BN), T.tfloat32)
            c_tile = T.alloc_shared((BM, BN), T.float32)
            # The threads of a warp read and write several rows of a column: swizzled, these lie in different banks.
            T.annotate_layout({b_tile: make_swizzled_layout(b_tile), c_tile: make_swizzled_layout(c_tile)})
            left = T.alloc_fragment((BN, BK), T.tfloat32)
            total = T.alloc_fragment((BN, BM), T.float32)
            T.use_swizzle(GROUP)
            T.clear(total)
            for step in T.Pipelined(T.ceildiv(K, BK), num_stages=stages):
                T.copy(a[bm * BM, step * BK], a_tile)
                T.copy(b[step * BK, bn * BN], b_tile)
                for n, k in T.Parallel(BN, BK):
                    left[n, k] = b_tile[k, n]
                T.gemm(left, a_tile, total, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            for n, m in T.Parallel(BN, BM):
                c_tile[m, n] = total[n, m]
            T.copy(c_tile, c[bm * BM, bn * BN])

    return matmul_turned


@tilelang.jit
def fp8_kernel(dtype: torch.dtype, BM: int, BN: int, BK: int, GROUP: int, stages: int, threads: int):
    """The same for fp8, b [N, K]. Hopper's tensor cores add fp8 products with about 14 bits, so each BK of them is
    summed apart and then added in fp32. The tile's left and right half take turns, so that one partial sum of half a
    tile is alive; while one warp group adds, the other multiplies."""
    M, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")
    HALF = BN // 2
    policy = T.GemmWarpPolicy.FullRow  # both warp groups have a whole row's half: 64 rows, HALF columns

    @T.prim_func
    def matmul_fp8(a: T.Tensor((M, K), dtype), b: T.Tensor((N, K), dtype), c: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=threads) as (bn, bm):
            a_tile = T.alloc_shared((BM, BK), dtype)
            left_tile = T.alloc_shared((HALF, BK), dtype)
            right_tile = T.alloc_shared((HALF, BK), dtype)
            c_tile = T.alloc_shared((BM, HALF), dtype)
            part = T.alloc_fragment((BM, HALF), T.float32)
            left = T.alloc_fragment((BM, HALF), T.float32)
            right = T.alloc_fragment((BM, HALF), T.float32)
            T.use_swizzle(GROUP)
            T.clear(left)
            T.clear(right)
            for step in T.Pipelined(T.ceildiv(K, BK), num_stages=stages):
                T.copy(a[bm * BM, step * BK], a_tile)
                T.copy(b[bn * BN, step * BK], left_tile)
                T.copy(b[bn * BN + HALF, step * BK], right_tile)
                T.gemm(a_tile, left_tile, part, transpose_B=True, clear_accum=True, policy=policy)
                for i, j in T.Parallel(BM, HALF):
                    left[i, j] += part[i, j]
                T.gemm(a_tile, right_tile, part, transpose_B=True, clear_accum=True, policy=policy)
                for i, j in T.Parallel(BM, HALF):
                    right[i, j] += part[i, j]
            for i, j in T.Parallel(BM, HALF):
                left[i, j] = T.clamp(left[i, j], -448, 448)
                right[i, j] = T.clamp(right[i, j], -448, 448)
            T.copy(left, c_tile)
            T.copy(c_tile, c[bm * BM, bn * BN])
            T.copy(right, c_tile)
            T.copy(c_tile, c[bm * BM, bn * BN + HALF])

    return matmul_fp8


@tilelang.jit
def unaligned_kernel(dtype: torch.dtype, BM: int, BN: int, BK: int, threads: int):
    """The same product for rows that TMA can't address: their pitch is no multiple of 16 bytes."""
    M, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")
    operand = T.float16 if dtype == torch.float8_e4m3fn else dtype  # holds every fp8 number exactly

    @T.prim_func
    def matmul_unaligned(a: T.Tensor((M, K), dtype), b: T.Tensor((K, N), dtype), c: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=threads) as (bn, bm):
            a_tile = T.alloc_shared((BM, BK), operand)
            b_tile = T.alloc_shared((BK, BN), operand)
            total = T.alloc_fragment((BM, BN), T.float32)
            T.clear(total)
            for step in T.serial(T.ceildiv(K, BK)):
                T.copy(a[bm * BM, step * BK], a_tile, disable_tma=True)
                T.copy(b[step * BK, bn * BN], b_tile, disable_tma=True)
                T.gemm(a_tile, b_tile, total)
            if dtype == torch.float8_e4m3fn:
                for i, j in T.Parallel(BM, BN):
                    total[i, j] = T.clamp(total[i, j], -448, 448)
            T.copy(total, c[bm * BM, bn * BN], disable_tma=True)

    return matmul_unaligned


def run(
    a: torch.Tensor, b: torch.Tensor, *, BM: int, BN: int, BK: int, GROUP: int, TRANSPOSE_B: bool, stages: int,
    threads: int,
) -> torch.Tensor:  # fmt: skip
    """Return c = a·b in the operands' dtype; a [M, K], b [K, N], c [M, N]."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty([M, N], dtype=a.dtype, device=a.device)
    size = a.element_size()
    if K * size % 16 or N * size % 16:
        unaligned_kernel(a.dtype, 64, 64, 32, 128)(a, b, c)
        return c
    if TRANSPOSE_B or size == 1:  # no other way for fp8
        t = torch.empty([N, K], dtype=b.dtype, device=b.device)
        transpose_kernel(b.dtype, 64 if size > 1 else 128, 256)(b, t)
        b = t
    if size == 1:
        fp8_kernel(a.dtype, BM, BN, BK, GROUP, stages, threads)(a, b, c)
    elif size == 4 and not TRANSPOSE_B:
        turned_kernel(BM, BN, BK, GROUP, stages, threads)(a, b, c)
    else:
        matmul_kernel(a.dtype, BM, BN, BK, stages, threads, TRANSPOSE_B)(a, b, c, GROUP)
    return c


def _config(BM: int, BN: int, BK: int, stages: int, threads: int, GROUP: int = 8, transpose: bool = False) -> Config:
    return {
        "BM": BM, "BN": BN, "BK": BK, "GROUP": GROUP, "TRANSPOSE_B": transpose, "stages": stages, "threads": threads
    }  # fmt: skip


def default(case: Case) -> Config:
    depth = 128 // case.dtype_size  # one row of a tile fills TMA's widest swizzle, 128 bytes
    if case.dtype == "fp32":
        return _config(256, 128, depth, 4, 256)
    return _config(128, 256, depth, 4, 256, transpose=case.dtype == "fp8_e4m3")  # two warp groups multiply


def space(case: Case) -> list[Config]:
    depth = 128 // case.dtype_size
    if case.dtype == "fp32":
        turned = [(128, 128, 4, 256), (128, 128, 6, 256), (256, 128, 3, 256), (256, 128, 4, 256), (192, 192, 4, 384)]
        shapes = [(128, 128, 4, 128), (128, 256, 3, 256), (128, 256, 4, 256), (256, 128, 4, 256)]
        return [
            _config(bm, bn, depth, stages, threads, group, transpose)
            for transpose, several in ((False, turned), (True, shapes))
            for bm, bn, stages, threads in several
            for group in (4, 8, 16)
        ]
    shapes = [
        (128, 128, depth, 4, 128), (128, 128, depth, 4, 256), (128, 128, depth, 6, 256), (128, 256, depth, 3, 256),
        (128, 256, depth, 4, 256),
    ]  # fmt: skip
    if case.dtype == "fp16":
        shapes += [
            (256, 128, depth, 3, 256), (256, 128, depth, 4, 256), (128, 128, 128, 3, 256), (128, 256, 128, 2, 256),
            (128, 192, depth, 5, 256),
        ]  # fmt: skip
    return [_config(*shape, group, case.dtype == "fp8_e4m3") for shape in shapes for group in (4, 8, 16)]


def unsupported(case: Case, device: Device) -> str | None:
    if device.capability < (9, 0):
        return "TileLang 0.1.15 pipelines a loop of unknown length only where there is TMA (compute capability 9.0)"
    return None


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
