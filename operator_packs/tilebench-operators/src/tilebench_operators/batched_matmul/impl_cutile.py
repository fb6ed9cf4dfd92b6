"""Batched matrix multiplication in cuTile: a block computes output tiles of a batch entry; TMA loads and stores.

The operands travel from the L2 cache to the multiprocessors once per tile that needs them, and at these sizes that road
(about 7 TB/s) is what limits: a large tile travels least. But the tiles come in rounds, and a round that is hardly filled
costs as much as a full one. `default` weighs the two. Tiles that fill a multiprocessor alone are computed by blocks that
stay and walk over tiles, so that the next tile's loads start during this tile's epilogue; a tile of 256×256 is divided
between two multiprocessors, and what both need comes to both at once (TMA multicast).

TF32 tensor cores want k innermost in shared memory, which b [K, N] has not: from 128 on a first launch writes b's
transpose, inside the call; below it, the compiler shuffles the tile on the way, which at these sizes costs less than
another pass over b.
"""

import functools

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors

from tilebench_operators.batched_matmul._tiles import estimate_us

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def transpose_kernel(b, t, TILE: ct.Constant[int]):
    """t[e, n, k] = b[e, k, n]; b [BATCH, K, N], t [BATCH, N, K]."""
    i, j, entry = ct.bid(0), ct.bid(1), ct.bid(2)
    tile = ct.load(b, (entry, i, j), (1, TILE, TILE)).reshape((TILE, TILE))
    ct.store(t, (entry, j, i), ct.transpose(tile).reshape((1, TILE, TILE)))


def bmm_tile(a, b, c, tile, BM, BN, BK, TRANSPOSED):
    """One tile of c. Loads beyond an edge give zeros, stores are dropped, within each matrix."""
    m_tiles, n_tiles = ct.cdiv(c.shape[1], BM), ct.cdiv(c.shape[2], BN)
    entry = tile // (m_tiles * n_tiles)
    m = tile // n_tiles % m_tiles
    n = tile % n_tiles
    accumulator = ct.zeros((BM, BN), ct.float32)
    for k in range(ct.cdiv(a.shape[2], BK)):
        x = ct.load(a, (entry, m, k), (1, BM, BK), padding_mode=ZERO)
        # In the order (0, 2, 1) the inner axes are swapped on the way: the tile [BK, BN] of b's transpose.
        order = (0, 2, 1) if TRANSPOSED else (0, 1, 2)
        y = ct.load(b, (entry, k, n), (1, BK, BN), order=order, padding_mode=ZERO)
        if a.dtype == ct.float32:  # without the cast, fp32 products avoid the tensor cores
            x, y = x.astype(ct.tfloat32), y.astype(ct.tfloat32)
        accumulator = ct.mma(x.reshape((BM, BK)), y.reshape((BK, BN)), accumulator)
    ct.store(c, (entry, m, n), accumulator.astype(c.dtype).reshape((1, BM, BN)))


@ct.kernel
def bmm_kernel(
    a, b, c, tiles, BM: ct.Constant[int], BN: ct.Constant[int], BK: ct.Constant[int], TRANSPOSED: ct.Constant[bool],
    STAY: ct.Constant[bool],
):  # fmt: skip
    """c[e] = a[e]·b[e]; a [BATCH, M, K], c [BATCH, M, N], b [BATCH, K, N] or, if TRANSPOSED, [BATCH, N, K].

    A block computes one tile or, to STAY, every so many of `tiles`. Tiles of one matrix are neighbours in time.
    """
    if STAY:
        for tile in range(ct.bid(0), tiles, ct.num_blocks(0)):
            bmm_tile(a, b, c, tile, BM, BN, BK, TRANSPOSED)
    else:
        bmm_tile(a, b, c, ct.bid(0), BM, BN, BK, TRANSPOSED)


@functools.cache
def hinted(warps: int, occupancy: int, ctas: int) -> ct.kernel:
    """`bmm_kernel` with that many warps for the arithmetic and `occupancy` blocks on a multiprocessor, or one on `ctas`."""
    return bmm_kernel.replace_hints(num_worker_warps=warps, occupancy=occupancy, num_ctas=ctas)


def run(
    a: torch.Tensor, b: torch.Tensor, BATCH: int, M: int, N: int, K: int, *, BM: int, BN: int, BK: int,
    TRANSPOSE_B: bool, STAY: bool, WARPS: int, OCCUPANCY: int, CTAS: int,
) -> torch.Tensor:  # fmt: skip
    """Return c [BATCH·M·N] of a [BATCH·M·K] and b [BATCH·K·N], in their dtype."""
    c = torch.empty(BATCH * M * N, dtype=a.dtype, device=a.device)
    b = b.view(BATCH, K, N)
    stream = torch.cuda.current_stream()
    size = a.element_size()
    if K * size % 16 or N * size % 16:
        # TMA can't address such rows, and elements loaded one by one need a small tile.
        BM, BN, BK, TRANSPOSE_B, STAY, WARPS, OCCUPANCY, CTAS = 64, 64, 32, False, False, 4, 1, 1
    if TRANSPOSE_B:
        transposed = torch.empty((BATCH, N, K), dtype=b.dtype, device=b.device)
        TILE = 64
        ct.launch(stream, (ct.cdiv(K, TILE), ct.cdiv(N, TILE), BATCH), transpose_kernel, (b, transposed, TILE))
        b = transposed
    tiles = BATCH * ct.cdiv(M, BM) * ct.cdiv(N, BN)
    blocks = min(tiles, multiprocessors(a.device) // CTAS) if STAY else tiles
    arrays = (a.view(BATCH, M, K), b, c.view(BATCH, M, N))
    ct.launch(stream, (blocks,), hinted(WARPS, OCCUPANCY, CTAS), (*arrays, tiles, BM, BN, BK, TRANSPOSE_B, STAY))
    return c


def _config(BM: int, BN: int, BK: int, warps: int, occupancy: int, ctas: int = 1, transpose: bool = False) -> Config:
    return {
        "BM": BM, "BN": BN, "BK": BK, "TRANSPOSE_B": transpose, "STAY": BM * BN >= 32768, "WARPS": warps,
        "OCCUPANCY": occupancy, "CTAS": ctas,
    }  # fmt: skip


TILES = [  # BM, BN, warps, blocks on a multiprocessor, multiprocessors of a block
    (64, 64, 4, 4, 1), (64, 128, 4, 2, 1), (128, 128, 4, 2, 1), (128, 256, 8, 1, 1), (256, 128, 8, 1, 1),
    (256, 256, 8, 1, 2),
]  # fmt: skip


def default(case: Case) -> Config:
    depth = 128 // case.dtype_size  # one row of a tile fills TMA's widest swizzle, 128 bytes
    transpose = case.dtype == "fp32" and case["M"] >= 128
    if case["M"] <= 64 or (case.dtype == "fp32" and not transpose):
        return _config(64, 64, depth, 4, 2)
    BM, BN, warps, occupancy, ctas = min(
        TILES, key=lambda tile: estimate_us(case, *tile[:2], tile[3], 0.5 if tile[3] == 1 else 1.5, tile[4])
    )
    return _config(BM, BN, depth, warps, occupancy, ctas, transpose)


def space(case: Case) -> list[Config]:
    depth = 128 // case.dtype_size
    shapes = [(64, 64, 4), (64, 128, 4), (128, 64, 4), (128, 128, 4), (128, 128, 8), (128, 256, 8), (256, 128, 8)]
    layouts = (False, True) if case.dtype == "fp32" else (False,)
    return [
        _config(bm, bn, depth, warps, occupancy, 1, transpose)
        for bm, bn, warps in shapes
        for occupancy in (1, 2, 4)
        for transpose in layouts
        if occupancy * bm * bn * (1 if warps == 4 else 0.5) <= 32768  # accumulators in registers
    ] + [_config(256, 256, depth, 8, 1, 2, transpose) for transpose in layouts]


KERNEL = Kernel(run=run, default=default, space=space)
