"""Batched matrix multiplication in cuTile: one block, one output tile of one batch entry; TMA loads and stores.

The matrices are small (32 to 640), so the tile size decides whether all multiprocessors have work, and a tile that just
covers an extent wastes least. b is read as it is: for TF32, whose tensor cores want k innermost, the compiler shuffles
the tile on the way, which at these sizes costs less than another pass over b.
"""

import functools

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def bmm_kernel(a, b, c, BM: ct.Constant[int], BN: ct.Constant[int], BK: ct.Constant[int]):
    """c[e] = a[e]·b[e]; a [BATCH, M, K], b [BATCH, K, N], c [BATCH, M, N].

    Loads beyond an edge give zeros, stores are dropped, within each matrix. Tiles of one matrix are neighbours in time.
    """
    m_tiles, n_tiles = ct.cdiv(c.shape[1], BM), ct.cdiv(c.shape[2], BN)
    entry = ct.bid(0) // (m_tiles * n_tiles)
    m = ct.bid(0) // n_tiles % m_tiles
    n = ct.bid(0) % n_tiles
    accumulator = ct.zeros((BM, BN), ct.float32)
    for k in range(ct.cdiv(a.shape[2], BK)):
        x = ct.load(a, (entry, m, k), (1, BM, BK), padding_mode=ZERO).reshape((BM, BK))
        y = ct.load(b, (entry, k, n), (1, BK, BN), padding_mode=ZERO).reshape((BK, BN))
        if a.dtype == ct.float32:  # without the cast, fp32 products avoid the tensor cores
            x, y = x.astype(ct.tfloat32), y.astype(ct.tfloat32)
        accumulator = ct.mma(x, y, accumulator)
    ct.store(c, (entry, m, n), accumulator.astype(c.dtype).reshape((1, BM, BN)))


@functools.cache
def hinted(warps: int, occupancy: int) -> ct.kernel:
    """`bmm_kernel` with that many warps for the arithmetic and `occupancy` blocks on a multiprocessor."""
    return bmm_kernel.replace_hints(num_worker_warps=warps, occupancy=occupancy)


def run(
    a: torch.Tensor, b: torch.Tensor, BATCH: int, M: int, N: int, K: int, *, BM: int, BN: int, BK: int,
    WARPS: int, OCCUPANCY: int,
) -> torch.Tensor:  # fmt: skip
    """Return c [BATCH·M·N] of a [BATCH·M·K] and b [BATCH·K·N], in their dtype."""
    c = torch.empty(BATCH * M * N, dtype=a.dtype, device=a.device)
    size = a.element_size()
    if K * size % 16 or N * size % 16:
        # TMA can't address such rows, and elements loaded one by one need a small tile.
        BM, BN, BK, WARPS, OCCUPANCY = 64, 64, 32, 4, 1
    grid = (BATCH * ct.cdiv(M, BM) * ct.cdiv(N, BN),)
    arrays = (a.view(BATCH, M, K), b.view(BATCH, K, N), c.view(BATCH, M, N))
    ct.launch(torch.cuda.current_stream(), grid, hinted(WARPS, OCCUPANCY), (*arrays, BM, BN, BK))
    return c


def _config(BM: int, BN: int, BK: int, warps: int, occupancy: int) -> Config:
    return {"BM": BM, "BN": BN, "BK": BK, "WARPS": warps, "OCCUPANCY": occupancy}


def default(case: Case) -> Config:
    size, depth = case["M"], 128 // case.dtype_size
    if size <= 64 or size % 128 == 32:  # 128-wide tiles would waste up to half of their work
        return _config(64, 64, min(depth, 64), 4, 2)
    return _config(128, 128, depth, 4, 2)


def space(case: Case) -> list[Config]:
    depth = 128 // case.dtype_size  # one row of a tile fills TMA's widest swizzle, 128 bytes
    shapes = [(64, 64, 4), (64, 128, 4), (128, 64, 4), (128, 128, 4), (128, 128, 8), (128, 256, 8)]
    return [
        _config(bm, bn, depth, warps, occupancy)
        for bm, bn, warps in shapes
        for occupancy in (1, 2, 4)
        if occupancy * bm * bn * (1 if warps == 4 else 0.5) <= 32768  # accumulators in registers
    ]


KERNEL = Kernel(run=run, default=default, space=space)
