"""Batched matrix multiplication in cuTile: a block computes output tiles of a batch entry; TMA loads and stores.

The operands travel from the L2 cache to the multiprocessors once per tile that needs them, and at these sizes that road
(about 7 TB/s) is what limits: a large tile travels least. But the tiles come in rounds, and a round that is hardly filled
costs as much as a full one. `default` weighs the two. In 16 bits a tile may have EXTRA columns beyond a power of two: two
products with one left operand. Tiles of one product that fill a multiprocessor alone are computed by blocks that stay and
walk over tiles, so that the next tile's loads start during this tile's epilogue. A tile may also be divided between CTAS
multiprocessors, and what both need comes to both at once (TMA multicast).

TF32 tensor cores want k innermost in shared memory, which b [K, N] has not. But their left operand may come from registers,
in any order: for fp32, c's transpose is computed, bᵀ·aᵀ, and b's tile turns on its way from shared memory to the registers.
"""

import functools

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors

from tilebench_operators.batched_matmul._tiles import MULTIPROCESSORS, estimate_us

ZERO = ct.PaddingMode.ZERO


def operand(tile):
    """A tile [1, rows, columns] as tensor cores take it; without the cast, fp32 products avoid them."""
    t = tile.astype(ct.tfloat32) if tile.dtype == ct.float32 else tile
    return t.reshape((tile.shape[1], tile.shape[2]))


def turned_tile(a, b, c, entry, m, n, BM, BN, BK):
    """One tile [BM, BN] of c, computed as its transpose."""
    accumulator = ct.zeros((BN, BM), ct.float32)
    for k in range(ct.cdiv(a.shape[2], BK)):
        # In the order (0, 2, 1) the inner axes are swapped on the way: the tile [BK, BM] of a's transpose.
        x = operand(ct.load(a, (entry, k, m), (1, BK, BM), order=(0, 2, 1), padding_mode=ZERO))
        y = operand(ct.load(b, (entry, k, n), (1, BK, BN), padding_mode=ZERO))
        accumulator = ct.mma(ct.transpose(y), x, accumulator)
    ct.store(c, (entry, m, n), ct.transpose(accumulator).astype(c.dtype).reshape((1, BM, BN)))


def plain_tile(a, b, c, entry, m, n, BM, BN, BK):
    """One tile [BM, BN] of c."""
    accumulator = ct.zeros((BM, BN), ct.float32)
    for k in range(ct.cdiv(a.shape[2], BK)):
        x = operand(ct.load(a, (entry, m, k), (1, BM, BK), padding_mode=ZERO))
        y = operand(ct.load(b, (entry, k, n), (1, BK, BN), padding_mode=ZERO))
        accumulator = ct.mma(x, y, accumulator)
    ct.store(c, (entry, m, n), accumulator.astype(c.dtype).reshape((1, BM, BN)))


def wide_tile(a, b, c, entry, m, n, BM, BN, EXTRA, BK):
    """One tile [BM, BN + EXTRA] of c, in two parts. Of the last tile, all of the second part may lie outside."""
    first = n * ((BN + EXTRA) // EXTRA)  # counted in EXTRA columns
    second, last = first + BN // EXTRA, ct.cdiv(c.shape[2], EXTRA) - 1
    columns = b.tiled_view((1, BK, BN), padding_mode=ZERO, traversal_steps=(1, BK, EXTRA))
    accumulator, more = ct.zeros((BM, BN), ct.float32), ct.zeros((BM, EXTRA), ct.float32)
    for k in range(ct.cdiv(a.shape[2], BK)):
        x = operand(ct.load(a, (entry, m, k), (1, BM, BK), padding_mode=ZERO))
        y = operand(columns.load((entry, k, first)))
        z = operand(ct.load(b, (entry, k, ct.minimum(second, last)), (1, BK, EXTRA), padding_mode=ZERO))
        accumulator = ct.mma(x, y, accumulator)
        more = ct.mma(x, z, more)
    results = c.tiled_view((1, BM, BN), traversal_steps=(1, BM, EXTRA))
    results.store((entry, m, first), accumulator.astype(c.dtype).reshape((1, BM, BN)))
    if second <= last:
        ct.store(c, (entry, m, second), more.astype(c.dtype).reshape((1, BM, EXTRA)))


def bmm_tile(a, b, c, tile, BM, BN, EXTRA, BK, TURNED):
    """One tile of c. Loads beyond an edge give zeros, stores are dropped, within each matrix."""
    m_tiles, n_tiles = ct.cdiv(c.shape[1], BM), ct.cdiv(c.shape[2], BN + EXTRA)
    entry = tile // (m_tiles * n_tiles)
    m = tile // n_tiles % m_tiles
    n = tile % n_tiles
    if TURNED:
        turned_tile(a, b, c, entry, m, n, BM, BN, BK)
    elif EXTRA:
        wide_tile(a, b, c, entry, m, n, BM, BN, EXTRA, BK)
    else:
        plain_tile(a, b, c, entry, m, n, BM, BN, BK)


@ct.kernel
def bmm_kernel(
    a, b, c, tiles, BM: ct.Constant[int], BN: ct.Constant[int], EXTRA: ct.Constant[int], BK: ct.Constant[int],
    TURNED: ct.Constant[bool], STAY: ct.Constant[bool],
):  # fmt: skip
    """c[e] = a[e]·b[e]; a [BATCH, M, K], b [BATCH, K, N], c [BATCH, M, N].

    A block computes one tile or, to STAY, every so many of `tiles`. Tiles of one matrix are neighbours in time.
    """
    if STAY:
        for tile in range(ct.bid(0), tiles, ct.num_blocks(0)):
            bmm_tile(a, b, c, tile, BM, BN, EXTRA, BK, TURNED)
    else:
        bmm_tile(a, b, c, ct.bid(0), BM, BN, EXTRA, BK, TURNED)


@functools.cache
def hinted(warps: int, occupancy: int, ctas: int) -> ct.kernel:
    """`bmm_kernel` with that many warps for the arithmetic and `occupancy` blocks on a multiprocessor, or one on `ctas`."""
    return bmm_kernel.replace_hints(num_worker_warps=warps, occupancy=occupancy, num_ctas=ctas)


def run(
    a: torch.Tensor, b: torch.Tensor, BATCH: int, M: int, N: int, K: int, *, BM: int, BN: int, EXTRA: int, BK: int,
    TURNED: bool, STAY: bool, WARPS: int, OCCUPANCY: int, CTAS: int,
) -> torch.Tensor:  # fmt: skip
    """Return c [BATCH·M·N] of a [BATCH·M·K] and b [BATCH·K·N], in their dtype."""
    c = torch.empty(BATCH * M * N, dtype=a.dtype, device=a.device)
    size = a.element_size()
    if K * size % 16 or N * size % 16:
        # TMA can't address such rows, and elements loaded one by one need a small tile.
        BM, BN, EXTRA, BK, TURNED, STAY, WARPS, OCCUPANCY, CTAS = 64, 64, 0, 32, False, False, 4, 1, 1
    tiles = BATCH * ct.cdiv(M, BM) * ct.cdiv(N, BN + EXTRA)
    blocks = min(tiles, multiprocessors(a.device) // CTAS) if STAY else tiles
    arrays = (a.view(BATCH, M, K), b.view(BATCH, K, N), c.view(BATCH, M, N))
    constants = (BM, BN, EXTRA, BK, TURNED, STAY)
    ct.launch(torch.cuda.current_stream(), (blocks,), hinted(WARPS, OCCUPANCY, CTAS), (*arrays, tiles, *constants))
    return c


def stays(case: Case, EXTRA: int, occupancy: int) -> bool:
    """Whether blocks stay for several tiles. Around the loop of a turned product accumulators would spill, and around that
    of two products the compiler lets each wait for the one before."""
    return occupancy == 1 and EXTRA == 0 and case.dtype != "fp32"


def pause_us(case: Case, EXTRA: int, occupancy: int) -> float:
    """Time between rounds; two blocks that share a multiprocessor fill each other's pauses."""
    if stays(case, EXTRA, occupancy):
        return 0.5
    return 1.5 if occupancy > 1 else 2.0


def _config(case: Case, BM: int, BN: int, EXTRA: int, warps: int, occupancy: int, ctas: int = 1) -> Config:
    return {
        "BM": BM, "BN": BN, "EXTRA": EXTRA,
        "BK": 128 // case.dtype_size,  # one row of a tile fills TMA's widest swizzle, 128 bytes
        "TURNED": case.dtype == "fp32", "STAY": stays(case, EXTRA, occupancy), "WARPS": warps,
        "OCCUPANCY": occupancy, "CTAS": ctas,
    }  # fmt: skip


TILES = [  # BM, BN, EXTRA, warps, blocks on a multiprocessor
    (64, 64, 0, 4, 4), (64, 128, 0, 4, 2), (64, 128, 32, 4, 2), (128, 64, 32, 4, 2), (128, 128, 0, 4, 2), (128, 128, 32, 4, 2),
    (128, 128, 64, 8, 1), (128, 256, 0, 8, 1), (256, 128, 0, 8, 1),
]  # fmt: skip
TURNED_TILES = [  # a group of four warps has 64 columns
    (64, 64, 0, 4, 4), (128, 64, 0, 4, 2), (256, 64, 0, 4, 2), (128, 128, 0, 8, 1), (256, 128, 0, 8, 1),
]  # fmt: skip


def default(case: Case) -> Config:
    if case["M"] <= 64:
        return _config(case, 64, 64, 0, 4, 2)
    BM, BN, EXTRA, warps, occupancy = min(
        TURNED_TILES if case.dtype == "fp32" else TILES,
        key=lambda tile: estimate_us(case, tile[0], tile[1] + tile[2], tile[4], pause_us(case, tile[2], tile[4])),
    )
    m = case["M"]
    tiles = case["BATCH"] * -(-m // BM) * -(-case.params.get("N", m) // (BN + EXTRA))
    if tiles <= 2 * MULTIPROCESSORS:
        occupancy = min(occupancy, 2)  # which leaves memory for more stages
    return _config(case, BM, BN, EXTRA, warps, occupancy)


def space(case: Case) -> list[Config]:
    if case.dtype == "fp32":
        return [
            _config(case, bm, bn, 0, warps, occupancy)
            for bm, bn, warps in [(64, 64, 4), (128, 64, 4), (256, 64, 4), (64, 128, 8), (128, 128, 8), (256, 128, 8)]
            for occupancy in (1, 2, 4)
            if occupancy * bm * bn <= 32768  # accumulators in registers
        ]
    shapes = [
        (64, 64, 0, 4), (64, 128, 0, 4), (128, 64, 0, 4), (128, 128, 0, 4), (128, 128, 0, 8), (128, 256, 0, 8),
        (256, 128, 0, 8), (64, 128, 32, 4), (64, 128, 64, 4), (128, 64, 32, 4), (128, 128, 32, 4), (128, 128, 64, 8),
    ]  # fmt: skip
    return [
        _config(case, bm, bn, extra, warps, occupancy)
        for bm, bn, extra, warps in shapes
        for occupancy in (1, 2, 4)
        if occupancy * bm * (bn + extra) <= 40960  # accumulators in registers
    ] + [_config(case, 256, 256, 0, 8, 1, 2)]


KERNEL = Kernel(run=run, default=default, space=space)
