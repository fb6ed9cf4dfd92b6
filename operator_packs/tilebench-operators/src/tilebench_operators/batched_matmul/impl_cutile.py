"""Batched matrix multiplication in cuTile: one block, one output tile of one batch entry; TMA loads and stores.

The operands travel from the L2 cache to the multiprocessors once per tile that needs them, and at these sizes that road
(about 7 TB/s) is what limits: a large tile travels least. But the tiles come in rounds, and a round that is hardly filled
costs as much as a full one. `default` weighs the two. TF32 tensor cores want k innermost in shared memory, which b [K, N]
has not: from 128 on a first launch writes b's transpose, inside the call; below it, the compiler shuffles the tile on
the way, which at these sizes costs less than another pass over b.
"""

import functools
import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def transpose_kernel(b, t, TILE: ct.Constant[int]):
    """t[e, n, k] = b[e, k, n]; b [BATCH, K, N], t [BATCH, N, K]."""
    i, j, entry = ct.bid(0), ct.bid(1), ct.bid(2)
    tile = ct.load(b, (entry, i, j), (1, TILE, TILE)).reshape((TILE, TILE))
    ct.store(t, (entry, j, i), ct.transpose(tile).reshape((1, TILE, TILE)))


@ct.kernel
def bmm_kernel(
    a, b, c, BM: ct.Constant[int], BN: ct.Constant[int], BK: ct.Constant[int], TRANSPOSED: ct.Constant[bool]
):
    """c[e] = a[e]·b[e]; a [BATCH, M, K], c [BATCH, M, N], b [BATCH, K, N] or, if TRANSPOSED, [BATCH, N, K].

    Loads beyond an edge give zeros, stores are dropped, within each matrix. Tiles of one matrix are neighbours in time.
    """
    m_tiles, n_tiles = ct.cdiv(c.shape[1], BM), ct.cdiv(c.shape[2], BN)
    entry = ct.bid(0) // (m_tiles * n_tiles)
    m = ct.bid(0) // n_tiles % m_tiles
    n = ct.bid(0) % n_tiles
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


@functools.cache
def hinted(warps: int, occupancy: int) -> ct.kernel:
    """`bmm_kernel` with that many warps for the arithmetic and `occupancy` blocks on a multiprocessor."""
    return bmm_kernel.replace_hints(num_worker_warps=warps, occupancy=occupancy)


def run(
    a: torch.Tensor, b: torch.Tensor, BATCH: int, M: int, N: int, K: int, *, BM: int, BN: int, BK: int,
    TRANSPOSE_B: bool, WARPS: int, OCCUPANCY: int,
) -> torch.Tensor:  # fmt: skip
    """Return c [BATCH·M·N] of a [BATCH·M·K] and b [BATCH·K·N], in their dtype."""
    c = torch.empty(BATCH * M * N, dtype=a.dtype, device=a.device)
    b = b.view(BATCH, K, N)
    stream = torch.cuda.current_stream()
    size = a.element_size()
    if K * size % 16 or N * size % 16:
        # TMA can't address such rows, and elements loaded one by one need a small tile.
        BM, BN, BK, TRANSPOSE_B, WARPS, OCCUPANCY = 64, 64, 32, False, 4, 1
    if TRANSPOSE_B:
        transposed = torch.empty((BATCH, N, K), dtype=b.dtype, device=b.device)
        TILE = 64
        ct.launch(stream, (ct.cdiv(K, TILE), ct.cdiv(N, TILE), BATCH), transpose_kernel, (b, transposed, TILE))
        b = transposed
    grid = (BATCH * ct.cdiv(M, BM) * ct.cdiv(N, BN),)
    arrays = (a.view(BATCH, M, K), b, c.view(BATCH, M, N))
    ct.launch(stream, grid, hinted(WARPS, OCCUPANCY), (*arrays, BM, BN, BK, TRANSPOSE_B))
    return c


def _config(BM: int, BN: int, BK: int, warps: int, occupancy: int, transpose: bool = False) -> Config:
    return {"BM": BM, "BN": BN, "BK": BK, "TRANSPOSE_B": transpose, "WARPS": warps, "OCCUPANCY": occupancy}


TILES = [  # BM, BN, warps, blocks on a multiprocessor
    (64, 64, 4, 4), (64, 128, 4, 2), (128, 128, 4, 2), (128, 256, 8, 1), (256, 128, 8, 1),
]  # fmt: skip


def estimate_us(case: Case, tile: tuple[int, int, int, int]) -> float:
    """Time on an H200 beyond what all tiles have in common: rounds of resident tiles, and the way from the L2 cache."""
    BM, BN, _, per_sm = tile
    m = case["M"]
    n, k = case.params.get("N", m), case.params.get("K", m)
    m_tiles, n_tiles = math.ceil(m / BM), math.ceil(n / BN)
    per_sm = min(per_sm, math.ceil(case["BATCH"] * m_tiles * n_tiles / 132))
    rounds = math.ceil(case["BATCH"] * m_tiles * n_tiles / (132 * per_sm))
    slowness = case.dtype_size / 2  # fp32 moves and multiplies at half the speed
    multiply_us = slowness * per_sm * BM * BN * k / 3.5e6
    travel_us = slowness * case["BATCH"] * k * (m * n_tiles + n * m_tiles) / 6e6
    start_us = (BM + BN) / 400  # to fill the first stages
    return start_us + rounds * multiply_us + (rounds - 1) * 1.5 + travel_us


def default(case: Case) -> Config:
    depth = 128 // case.dtype_size  # one row of a tile fills TMA's widest swizzle, 128 bytes
    transpose = case.dtype == "fp32" and case["M"] >= 128
    if case["M"] <= 64 or (case.dtype == "fp32" and not transpose):
        return _config(64, 64, depth, 4, 2)
    BM, BN, warps, occupancy = min(TILES, key=lambda tile: estimate_us(case, tile))
    return _config(BM, BN, depth, warps, occupancy, transpose)


def space(case: Case) -> list[Config]:
    depth = 128 // case.dtype_size
    shapes = [(64, 64, 4), (64, 128, 4), (128, 64, 4), (128, 128, 4), (128, 128, 8), (128, 256, 8), (256, 128, 8)]
    return [
        _config(bm, bn, depth, warps, occupancy, transpose)
        for bm, bn, warps in shapes
        for occupancy in (1, 2, 4)
        for transpose in ((False, True) if case.dtype == "fp32" else (False,))
        if occupancy * bm * bn * (1 if warps == 4 else 0.5) <= 32768  # accumulators in registers
    ]


KERNEL = Kernel(run=run, default=default, space=space)
