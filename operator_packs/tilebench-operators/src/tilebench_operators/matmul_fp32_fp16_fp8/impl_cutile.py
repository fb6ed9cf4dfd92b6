"""Matrix multiplication in cuTile: blocks walk output tiles in grouped order; TMA feeds the tensor cores.

Hopper's tensor cores read fp8 and TF32 operands from shared memory only with k innermost, but b [K, N] has n innermost.
With TRANSPOSE_B a first kernel writes b's transpose, inside the call: 2·K·N·s extra bytes, a tenth of the time of a
4096 × 4096 product, for a main loop without shuffles. fp16 needs none of it.

Eight worker warps are what makes a tile of 128 × 256 possible: its accumulator takes 256 registers in each thread of
four warps, which then spill, and 128 in each thread of eight. cuTile sums fp8 products in fp32 unless `use_fast_acc` is set.
"""

import functools

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors

ZERO = ct.PaddingMode.ZERO


def to_output(x, dtype):
    """Round fp32 once; fp8 saturates instead of overflowing to NaN."""
    if dtype == ct.float8_e4m3fn:
        x = ct.minimum(ct.maximum(x, -448.0), 448.0)
    return x.astype(dtype)


def grouped(tile, m_tiles, n_tiles, GROUP):
    """Tiles in column order within bands of GROUP tile rows: neighbours in time share operands in the L2 cache."""
    band = tile // (GROUP * n_tiles)
    height = ct.minimum(m_tiles - band * GROUP, GROUP)
    within = tile % (GROUP * n_tiles)
    return band * GROUP + within % height, within // height


@ct.kernel
def transpose_kernel(b, t, TILE: ct.Constant[int]):
    """t[n, k] = b[k, n]; b [K, N], t [N, K]."""
    i, j = ct.bid(0), ct.bid(1)
    ct.store(t, (j, i), ct.transpose(ct.load(b, (i, j), (TILE, TILE))))


@ct.kernel
def matmul_kernel(
    a, b, c,
    BM: ct.Constant[int], BN: ct.Constant[int], BK: ct.Constant[int], GROUP: ct.Constant[int],
    TRANSPOSED: ct.Constant[bool],
):  # fmt: skip
    """c = a·b; a [M, K], c [M, N], b [K, N] or, if TRANSPOSED, [N, K]. Loads beyond the edge give zeros."""
    m_tiles, n_tiles, k_tiles = ct.cdiv(c.shape[0], BM), ct.cdiv(c.shape[1], BN), ct.cdiv(a.shape[1], BK)
    for tile in range(ct.bid(0), m_tiles * n_tiles, ct.num_blocks(0)):
        m, n = grouped(tile, m_tiles, n_tiles, GROUP)
        accumulator = ct.zeros((BM, BN), ct.float32)
        for k in range(k_tiles):
            x = ct.load(a, (m, k), (BM, BK), padding_mode=ZERO)
            # In the order (1, 0) the axes are swapped on the way: the tile [BK, BN] of b's transpose.
            y = ct.load(b, (k, n), (BK, BN), order=(1, 0) if TRANSPOSED else (0, 1), padding_mode=ZERO)
            if a.dtype == ct.float32:  # without the cast, fp32 products avoid the tensor cores
                x, y = x.astype(ct.tfloat32), y.astype(ct.tfloat32)
            accumulator = ct.mma(x, y, accumulator)
        ct.store(c, (m, n), to_output(accumulator, c.dtype))


@functools.cache
def hinted(warps: int) -> ct.kernel:
    """`matmul_kernel` with that many warps for the arithmetic. A hinted kernel has compiled code of its own."""
    return matmul_kernel.replace_hints(num_worker_warps=warps)


def run(
    a: torch.Tensor, b: torch.Tensor, *, BM: int, BN: int, BK: int, GROUP: int, TRANSPOSE_B: bool,
    BLOCKS_PER_SM: int, WARPS: int,
) -> torch.Tensor:  # fmt: skip
    """Return c = a·b in the operands' dtype; a [M, K], b [K, N], c [M, N].

    BLOCKS_PER_SM blocks stay on each multiprocessor; 0 starts one block per tile instead.
    """
    (M, K), N = a.shape, b.shape[1]
    stream = torch.cuda.current_stream()
    c = torch.empty([M, N], dtype=a.dtype, device=a.device)
    size = a.element_size()
    if K * size % 16 or N * size % 16:
        # TMA can't address such rows, and elements loaded one by one need a small tile.
        BM, BN, BK, TRANSPOSE_B, BLOCKS_PER_SM, WARPS = 64, 64, 32, False, 0, 4
    if TRANSPOSE_B:
        transposed = torch.empty([N, K], dtype=b.dtype, device=b.device)
        TILE = 64 if size > 1 else 128  # at least 128 bytes in a row, read and written
        ct.launch(stream, (ct.cdiv(K, TILE), ct.cdiv(N, TILE)), transpose_kernel, (b, transposed, TILE))
        b = transposed
    tiles = ct.cdiv(M, BM) * ct.cdiv(N, BN)
    blocks = min(tiles, BLOCKS_PER_SM * multiprocessors(a.device)) if BLOCKS_PER_SM else tiles
    ct.launch(stream, (blocks,), hinted(WARPS), (a, b, c, BM, BN, BK, GROUP, TRANSPOSE_B))
    return c


def _config(tile: tuple[int, int, int], warps: int, per_sm: int, transpose: bool, group: int = 8) -> Config:
    BM, BN, BK = tile
    return {
        "BM": BM, "BN": BN, "BK": BK, "GROUP": group, "TRANSPOSE_B": transpose, "BLOCKS_PER_SM": per_sm, "WARPS": warps,
    }  # fmt: skip


def default(case: Case) -> Config:
    if case.dtype == "fp16":
        return _config((128, 256, 64), 8, 0, False)
    if case.dtype == "fp8_e4m3":  # its two accumulators, one per BK products and the sum, fill a tile of 128 × 128
        return _config((128, 128, 128), 8, 0, True)
    return _config((128, 256, 32), 8, 0, True)


def space(case: Case) -> list[Config]:
    depth = 128 // case.dtype_size  # one row of a tile fills TMA's widest swizzle, 128 bytes
    shapes = [(128, 128, 8)]
    shapes += [(64, 256, 8)] if case.dtype == "fp8_e4m3" else [(128, 256, 8), (256, 128, 8)]
    if case.dtype == "fp16":  # the others spill with four warps
        shapes.append((128, 128, 4))
    return [
        _config((bm, bn, depth), warps, per_sm, transpose, group)
        for bm, bn, warps in shapes
        for per_sm in (0, 1)
        for transpose in ([False] if case.dtype == "fp16" else [False, True])
        for group in ((8, 16) if case.dtype == "fp16" else (8,))
    ]


KERNEL = Kernel(run=run, default=default, space=space)
