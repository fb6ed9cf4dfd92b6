"""Stream-K matrix multiplication in TileLang: whole waves of tiles, and one wave split along k.

With T tiles and P multiprocessors, the T mod P tiles of the incomplete wave become one list of k steps, which is cut
into P equal ranges. Three launches:
1. every block sums its range, which touches one or two tiles, into fp32 pieces of a workspace;
2. every block computes one whole tile: their number is a multiple of P;
3. the pieces are added up.
Only the split tiles pass through fp32 memory, and no atomics are needed, so results are reproducible. A nearly full
last wave is not split: the pieces' traffic would cost more than the idle multiprocessors.

Hopper's tensor cores read TF32 operands from shared memory only with k innermost; for fp32 a first kernel writes b's
transpose, inside the call. Otherwise T.gemm falls back to the instructions of Ampere.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Device, Kernel, multiprocessors

from tilebench_operators._tilelang_matmul import OPERAND, transpose_kernel, unaligned_kernel

SPLIT_BELOW = 0.75  # of a wave
STRIP = 16  # rows of a split tile that one block adds up


def grouped(tile, m_tiles, n_tiles, GROUP: int):
    """Row and column of a tile, in column order within bands of GROUP tile rows: neighbours in time share operands in
    the L2 cache. Kernels keep both in variables: an expression would be computed again at every use.
    """
    band = tile // (GROUP * n_tiles)
    height = T.max(T.min(m_tiles - band * GROUP, GROUP), 1)
    within = tile % (GROUP * n_tiles)
    return band * GROUP + within % height, within // height


def range_start(block, short, longer):
    """The first of the k steps that `block` sums. A range has `short` steps, the first `longer` ranges one more."""
    return block * short + T.min(block, longer)


def owner(step, short, longer):
    """The block whose range holds `step`."""
    return T.if_then_else(
        step < longer * (short + 1),
        step // (short + 1),
        longer + T.max(step - longer * (short + 1), 0) // T.max(short, 1),
    )


@tilelang.jit
def split_kernel(dtype: torch.dtype, BM: int, BN: int, BK: int, GROUP: int, stages: int, threads: int, turned: bool):
    """Sum this block's range of the first tiles' k steps, `steps` per tile; pieces [blocks, 2, BM, BN] fp32.

    a [M, K], b [K, N] or, if turned, [N, K]. Loads beyond the edge give zeros.
    """
    M, N, K, blocks = T.dynamic("M"), T.dynamic("N"), T.dynamic("K"), T.dynamic("blocks")
    operand = OPERAND.get(dtype, dtype)

    @T.prim_func
    def streamk_split(
        a: T.Tensor((M, K), operand),
        b: T.Tensor((N, K) if turned else (K, N), operand),
        pieces: T.Tensor((blocks, 2, BM, BN), T.float32),
        steps: T.int32,
        short: T.int32,
        longer: T.int32,
    ):
        with T.Kernel(blocks, threads=threads) as block:
            a_tile = T.alloc_shared((BM, BK), operand)
            b_tile = T.alloc_shared((BN, BK) if turned else (BK, BN), operand)
            total = T.alloc_fragment((BM, BN), T.float32)
            T.assume(M > 0)  # without these, divisions would round towards minus infinity with care and at length
            T.assume(N > 0)
            T.assume(steps > 0)
            T.assume(short >= 0)
            T.assume(longer >= 0)
            i, j = T.alloc_var(T.int32), T.alloc_var(T.int32)
            first, length = T.alloc_var(T.int32), T.alloc_var(T.int32)
            start = range_start(block, short, longer)
            end = range_start(block + 1, short, longer)
            for piece in T.serial(2):  # a range is no longer than a tile, so it touches two at most
                tile = start // steps + piece
                place = grouped(tile, T.ceildiv(M, BM), T.ceildiv(N, BN), GROUP)
                i = place[0]
                j = place[1]
                first = T.max(start - tile * steps, 0)
                length = T.min(end - tile * steps, steps) - first  # negative if there is no second tile
                T.clear(total)
                for step in T.Pipelined(length, num_stages=stages):
                    T.copy(a[i * BM, (first + step) * BK], a_tile)
                    if turned:
                        T.copy(b[j * BN, (first + step) * BK], b_tile)
                    else:
                        T.copy(b[(first + step) * BK, j * BN], b_tile)
                    T.gemm(a_tile, b_tile, total, transpose_B=turned)
                if length > 0:
                    T.copy(total, pieces[block, piece, 0, 0], disable_tma=True)

    return streamk_split


@tilelang.jit
def whole_kernel(dtype: torch.dtype, BM: int, BN: int, BK: int, GROUP: int, stages: int, threads: int, turned: bool):
    """One of the tiles after the first `split`; a [M, K], b [K, N] or, if turned, [N, K], c [M, N]."""
    M, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")
    operand = OPERAND.get(dtype, dtype)

    @T.prim_func
    def streamk_whole(
        a: T.Tensor((M, K), operand),
        b: T.Tensor((N, K) if turned else (K, N), operand),
        c: T.Tensor((M, N), dtype),
        split: T.int32,
    ):
        with T.Kernel(T.ceildiv(M, BM) * T.ceildiv(N, BN) - split, threads=threads) as block:
            a_tile = T.alloc_shared((BM, BK), operand)
            b_tile = T.alloc_shared((BN, BK) if turned else (BK, BN), operand)
            c_tile = T.alloc_shared((BM, BN), dtype)
            total = T.alloc_fragment((BM, BN), T.float32)
            T.assume(split >= 0)
            T.assume(M > 0)
            T.assume(N > 0)
            i, j = T.alloc_var(T.int32), T.alloc_var(T.int32)
            place = grouped(split + block, T.ceildiv(M, BM), T.ceildiv(N, BN), GROUP)
            i = place[0]
            j = place[1]
            T.clear(total)
            for step in T.Pipelined(T.ceildiv(K, BK), num_stages=stages):
                T.copy(a[i * BM, step * BK], a_tile)
                if turned:
                    T.copy(b[j * BN, step * BK], b_tile)
                else:
                    T.copy(b[step * BK, j * BN], b_tile)
                T.gemm(a_tile, b_tile, total, transpose_B=turned)
            # Through shared memory, so that the tile leaves by TMA, which drops what lies outside.
            T.copy(total, c_tile)
            T.copy(c_tile, c[i * BM, j * BN])

    return streamk_whole


@tilelang.jit
def sum_kernel(dtype: torch.dtype, BM: int, BN: int, GROUP: int, VEC: int, threads: int):
    """Add up STRIP rows of a split tile's pieces [blocks, 2, BM, BN] into c [M, N]; VEC divides N."""
    M, N, blocks = T.dynamic("M"), T.dynamic("N"), T.dynamic("blocks")

    @T.prim_func
    def streamk_sum(
        pieces: T.Tensor((blocks, 2, BM, BN), T.float32),
        c: T.Tensor((M, N), dtype),
        split: T.int32,
        steps: T.int32,
        short: T.int32,
        longer: T.int32,
    ):
        with T.Kernel(BM // STRIP, split, threads=threads) as (strip, tile):
            T.assume(N % VEC == 0)
            T.assume(M > 0)  # without these, divisions would round towards minus infinity with care and at length
            T.assume(N > 0)
            T.assume(steps > 0)
            T.assume(short >= 0)
            T.assume(longer >= 0)
            i, j = T.alloc_var(T.int32), T.alloc_var(T.int32)
            first, last, piece = T.alloc_var(T.int32), T.alloc_var(T.int32), T.alloc_var(T.int32)
            total = T.alloc_fragment((STRIP, BN), T.float32)
            place = grouped(tile, T.ceildiv(M, BM), T.ceildiv(N, BN), GROUP)
            i = place[0]
            j = place[1]
            first = owner(tile * steps, short, longer)
            last = owner(tile * steps + steps - 1, short, longer)
            T.clear(total)
            for block in T.serial(first, last + 1):
                piece = tile - range_start(block, short, longer) // steps
                for row, column in T.Parallel(STRIP, BN):
                    total[row, column] += pieces[block, piece, strip * STRIP + row, column]
            for row, column in T.Parallel(STRIP, BN):
                if i * BM + strip * STRIP + row < M and j * BN + column < N:
                    c[i * BM + strip * STRIP + row, j * BN + column] = T.cast(total[row, column], dtype)

    return streamk_sum


def run(
    a: torch.Tensor, b: torch.Tensor, *, BM: int, BN: int, BK: int, GROUP: int, stages: int, threads: int
) -> torch.Tensor:
    """Return c = a·b in the operands' dtype; a [m, k], b [k, n], c [m, n]."""
    (m, k), n, size = a.shape, b.shape[1], a.element_size()
    c = torch.empty([m, n], dtype=a.dtype, device=a.device)
    if k * size % 16 or n * size % 16:
        unaligned_kernel(a.dtype, 64, 64, 32, 128)(a[None], b[None], c[None])
        return c
    turned = a.dtype == torch.float32
    if turned:
        transposed = torch.empty([n, k], dtype=b.dtype, device=b.device)
        transpose_kernel(b.dtype, 64, 256)(b[None], transposed[None])
        b = transposed
    tiles, blocks = -(-m // BM) * -(-n // BN), multiprocessors(a.device)
    split = tiles % blocks
    if split > SPLIT_BELOW * blocks:
        split = 0
    shape = (a.dtype, BM, BN, BK, GROUP, stages, threads, turned)
    if split:
        pieces = torch.empty([blocks, 2, BM, BN], dtype=torch.float32, device=a.device)
        steps = -(-k // BK)
        ranges = (steps, *divmod(split * steps, blocks))
        split_kernel(*shape)(a, b, pieces, *ranges)
    if tiles > split:
        whole_kernel(*shape)(a, b, c, split)
    if split:
        sum_kernel(a.dtype, BM, BN, GROUP, 16 // size, 256)(pieces, c, split, *ranges)
    return c


def _config(BM: int, BN: int, BK: int, stages: int, threads: int, GROUP: int = 8) -> Config:
    return {"BM": BM, "BN": BN, "BK": BK, "GROUP": GROUP, "stages": stages, "threads": threads}


def default(case: Case) -> Config:
    return _config(128, 256, 128 // case.dtype_size, 4, 256)


def space(case: Case) -> list[Config]:
    depth = 128 // case.dtype_size  # one row of a tile fills TMA's widest swizzle, 128 bytes
    shapes = [
        (128, 128, 4, 128), (128, 128, 6, 256), (256, 128, 3, 256), (256, 128, 4, 256), (128, 256, 3, 256),
        (128, 256, 4, 256), (64, 256, 4, 128),
    ]  # fmt: skip
    return [
        _config(bm, bn, depth, stages, threads, group) for bm, bn, stages, threads in shapes for group in (4, 8, 16)
    ]


def unsupported(case: Case, device: Device) -> str | None:
    if device.capability < (9, 0):
        return "TileLang 0.1.15 pipelines a loop of unknown length only where there is TMA (compute capability 9.0)"
    return None


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
