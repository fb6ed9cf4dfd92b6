"""int8 times 2-bit matrix multiplication in cuTile: unpack w once, then an int8 product on the tensor cores.

Hopper's int8 tensor cores read w from shared memory only with k innermost, while the packed matrix has n innermost.
Unpacking inside the product would therefore shuffle every byte of w once per tile row (16 times for 2048 rows); here
one small kernel unpacks and transposes into w [N, K] int8, inside the call, which mostly stays in the L2 cache. The
product starts while it still runs (programmatic dependent launch), and waits before it loads.
"""

import functools

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors

from tilebench_operators._cutile_dependent import launch_dependent

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def unpack_kernel(packed, w, TILE: ct.Constant[int]):
    """w[n, i, j] = ((packed[j, n] >> 2i) & 3) - 1; packed [QUARTER, N] uint8, w [N, 4, QUARTER] int8."""
    j, n = ct.bid(0), ct.bid(1)
    fields = ct.transpose(ct.load(packed, (j, n), (TILE, TILE), padding_mode=ZERO))
    for i in ct.static_iter(range(4)):
        value = ((fields >> (2 * i)) & 3).astype(ct.int8) - 1
        ct.store(w, (n, i, j), value.reshape((TILE, 1, TILE)))


@ct.kernel
def unpack_words_kernel(packed, w, TILE_J: ct.Constant[int], TILE_N: ct.Constant[int]):
    """The same for packed [WORDS, 4, N] and w [N, 4, WORDS] int32, in whole tiles: four numbers are unpacked at once in the
    bytes of a word, and words turn around in shared memory, not bytes."""
    ct.grid_dependency_control_launch_dependents()
    j, n = ct.bid(0), ct.bid(1)
    words = ct.zeros((TILE_J, TILE_N), ct.int32)
    for byte in ct.static_iter(range(4)):
        part = ct.load(packed, (j, byte, n), (TILE_J, 1, TILE_N), check_bounds=False, allow_tma=False)
        words |= part.reshape((TILE_J, TILE_N)).astype(ct.int32) << (8 * byte)
    words = ct.transpose(words)
    for i in ct.static_iter(range(4)):
        # Per byte: 0..3 plus 127 sets the top bit unless it was 0; flipped, that is the number minus 1.
        numbers = (((words >> (2 * i)) & 0x03030303) + 0x7F7F7F7F) ^ -0x7F7F7F80
        ct.store(w, (n, i, j), numbers.reshape((TILE_N, 1, TILE_J)), check_bounds=False, allow_tma=False)


def grouped(tile, m_tiles, n_tiles, GROUP):
    """Tiles in column order within bands of GROUP tile rows: neighbours in time share operands in the L2 cache."""
    band = tile // (GROUP * n_tiles)
    height = ct.minimum(m_tiles - band * GROUP, GROUP)
    within = tile % (GROUP * n_tiles)
    return band * GROUP + within % height, within // height


@ct.kernel
def matmul_kernel(a, w, c, BM: ct.Constant[int], BN: ct.Constant[int], BK: ct.Constant[int], GROUP: ct.Constant[int]):
    """c = a·wᵀ; a [M, K] int8, w [N, K] int8, c [M, N] int32. Loads beyond the edge give zeros."""
    ct.grid_dependency_control_wait()
    m_tiles, n_tiles, k_tiles = ct.cdiv(c.shape[0], BM), ct.cdiv(c.shape[1], BN), ct.cdiv(a.shape[1], BK)
    for tile in range(ct.bid(0), m_tiles * n_tiles, ct.num_blocks(0)):
        m, n = grouped(tile, m_tiles, n_tiles, GROUP)
        accumulator = ct.zeros((BM, BN), ct.int32)
        for k in range(k_tiles):
            x = ct.load(a, (m, k), (BM, BK), padding_mode=ZERO)
            # In the order (1, 0) the axes are swapped on the way: the tile [BK, BN] of w's transpose.
            y = ct.load(w, (k, n), (BK, BN), order=(1, 0), padding_mode=ZERO)
            accumulator = ct.mma(x, y, accumulator)
        ct.store(c, (m, n), accumulator)


@functools.cache
def hinted(warps: int) -> ct.kernel:
    """`matmul_kernel` with that many warps for the arithmetic. A hinted kernel has compiled code of its own."""
    return matmul_kernel.replace_hints(num_worker_warps=warps)


def run(
    a: torch.Tensor, packed: torch.Tensor, *, BM: int, BN: int, BK: int, GROUP: int, BLOCKS_PER_SM: int, WARPS: int
) -> torch.Tensor:
    """Return c [M, N] int32; a [M, K] int8, packed [K/4, N] uint8.

    BLOCKS_PER_SM blocks stay on each multiprocessor; 0 starts one block per tile instead.
    """
    (M, K), N = a.shape, packed.shape[1]
    stream = torch.cuda.current_stream()
    w = torch.empty([N, K], dtype=torch.int8, device=a.device)
    TILE_J, TILE_N = 16, 64  # words and bytes: 64 bytes in a row, read and written
    if K % (16 * TILE_J) or N % TILE_N:
        TILE = 128
        ct.launch(
            stream, (ct.cdiv(K // 4, TILE), ct.cdiv(N, TILE)), unpack_kernel, (packed, w.view(N, 4, K // 4), TILE)
        )
    else:
        words = packed.view(K // 16, 4, N), w.view(torch.int32).view(N, 4, K // 16)
        ct.launch(stream, (K // 16 // TILE_J, N // TILE_N), unpack_words_kernel, (*words, TILE_J, TILE_N))
    c = torch.empty([M, N], dtype=torch.int32, device=a.device)
    if K % 16 or N % 4:
        # TMA can't address such rows, and elements loaded one by one need a small tile.
        BM, BN, BK, BLOCKS_PER_SM, WARPS = 64, 64, 64, 0, 4
    tiles = ct.cdiv(M, BM) * ct.cdiv(N, BN)
    blocks = min(tiles, BLOCKS_PER_SM * multiprocessors(a.device)) if BLOCKS_PER_SM else tiles
    launch_dependent(stream, (blocks,), hinted(WARPS), (a, w, c, BM, BN, BK, GROUP))
    return c


def _config(BM: int, BN: int, BK: int, warps: int, per_sm: int) -> Config:
    return {"BM": BM, "BN": BN, "BK": BK, "GROUP": 8, "BLOCKS_PER_SM": per_sm, "WARPS": warps}


def default(case: Case) -> Config:
    # 2048 × 2048 results are 128 tiles of 128 × 256: one for each of Hopper's 132 multiprocessors.
    return _config(128, 256, 128, 8, 0)


def space(case: Case) -> list[Config]:
    shapes = [(128, 128, 128, 4), (128, 128, 128, 8), (128, 256, 128, 8), (256, 128, 128, 8), (128, 256, 64, 8)]
    return [_config(*shape, per_sm) for shape in shapes for per_sm in (0, 1)]


KERNEL = Kernel(run=run, default=default, space=space)
