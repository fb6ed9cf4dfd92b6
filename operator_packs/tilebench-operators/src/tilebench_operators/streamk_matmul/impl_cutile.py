"""Stream-K matrix multiplication in cuTile: whole waves of tiles, and the last wave split along k.

With T tiles and P multiprocessors, the T mod P tiles of the incomplete wave are each cut along k into as many equal
parts as fit on the P multiprocessors. Three launches:
1. every block sums one part of one split tile into an fp32 piece of a workspace;
2. every block computes one whole tile: their number is a multiple of P;
3. the pieces are added up.
Only the split tiles pass through fp32 memory, and no atomics are needed, so results are reproducible. The parts are
equal because cuTile pipelines a loop over k only if its length is a constant; Triton's kernel cuts at any k step.

Hopper's tensor cores read TF32 operands from shared memory only with k innermost; with TRANSPOSE_B a first kernel
writes b's transpose, inside the call.
"""

import functools

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors

ZERO = ct.PaddingMode.ZERO
STRIP = 16  # rows of a split tile that one block adds up


@ct.kernel
def transpose_kernel(b, t, TILE: ct.Constant[int]):
    """t[j, l] = b[l, j]; b [k, n], t [n, k]."""
    i, j = ct.bid(0), ct.bid(1)
    ct.store(t, (j, i), ct.transpose(ct.load(b, (i, j), (TILE, TILE))))


def grouped(tile, m_tiles, n_tiles, GROUP):
    """Tiles in column order within bands of GROUP tile rows: neighbours in time share operands in the L2 cache."""
    band = tile // (GROUP * n_tiles)
    height = ct.minimum(m_tiles - band * GROUP, GROUP)
    within = tile % (GROUP * n_tiles)
    return band * GROUP + within % height, within // height


def product(a, b, i, j, first, STEPS, BM, BN, BK, TRANSPOSED):
    """Tile (i, j) of a·b, summed over the k steps [first, first + STEPS). Loads beyond the edge give zeros."""
    accumulator = ct.zeros((BM, BN), ct.float32)
    for step in range(STEPS):
        x = ct.load(a, (i, first + step), (BM, BK), padding_mode=ZERO)
        # In the order (1, 0) the axes are swapped on the way: the tile [BK, BN] of b's transpose.
        y = ct.load(b, (first + step, j), (BK, BN), order=(1, 0) if TRANSPOSED else (0, 1), padding_mode=ZERO)
        if a.dtype == ct.float32:  # without the cast, fp32 products avoid the tensor cores
            x, y = x.astype(ct.tfloat32), y.astype(ct.tfloat32)
        accumulator = ct.mma(x, y, accumulator)
    return accumulator


@ct.kernel
def split_kernel(
    a, b, pieces, m_tiles, n_tiles, STEPS: ct.Constant[int], PARTS: ct.Constant[int],
    BM: ct.Constant[int], BN: ct.Constant[int], BK: ct.Constant[int], GROUP: ct.Constant[int],
    TRANSPOSED: ct.Constant[bool],
):  # fmt: skip
    """Sum one of PARTS parts, STEPS k steps long, of one of the first tiles; pieces [split·PARTS, BM, BN] fp32."""
    tile, part = ct.bid(0) // PARTS, ct.bid(0) % PARTS
    i, j = grouped(tile, m_tiles, n_tiles, GROUP)
    piece = product(a, b, i, j, part * STEPS, STEPS, BM, BN, BK, TRANSPOSED)
    ct.store(pieces, (ct.bid(0), 0, 0), piece.reshape((1, BM, BN)))


@ct.kernel
def whole_kernel(
    a, b, c, split, STEPS: ct.Constant[int],
    BM: ct.Constant[int], BN: ct.Constant[int], BK: ct.Constant[int], GROUP: ct.Constant[int],
    TRANSPOSED: ct.Constant[bool],
):  # fmt: skip
    """One of the tiles after the first `split`; a [m, k], b [k, n] or, if TRANSPOSED, [n, k], c [m, n]."""
    i, j = grouped(split + ct.bid(0), ct.cdiv(c.shape[0], BM), ct.cdiv(c.shape[1], BN), GROUP)
    accumulator = product(a, b, i, j, 0, STEPS, BM, BN, BK, TRANSPOSED)
    ct.store(c, (i, j), accumulator.astype(c.dtype))


@ct.kernel
def sum_kernel(
    pieces, c, m_tiles, n_tiles, PARTS: ct.Constant[int],
    BM: ct.Constant[int], BN: ct.Constant[int], ROWS: ct.Constant[int], GROUP: ct.Constant[int],
):  # fmt: skip
    """Add up ROWS rows of a split tile's pieces [split·PARTS, BM, BN] into c [m, n]."""
    tile, strip = ct.bid(0), ct.bid(1)
    i, j = grouped(tile, m_tiles, n_tiles, GROUP)
    row = i * (BM // ROWS) + strip
    if row * ROWS < c.shape[0]:  # a strip may lie below the last row
        total = ct.load(pieces, (tile * PARTS, strip, 0), (1, ROWS, BN), allow_tma=False)
        for part in range(1, PARTS):
            total += ct.load(pieces, (tile * PARTS + part, strip, 0), (1, ROWS, BN), allow_tma=False)
        ct.store(c, (row, j), total.reshape((ROWS, BN)).astype(c.dtype), allow_tma=False)


@functools.cache
def hinted(kernel: ct.kernel, warps: int) -> ct.kernel:
    """`kernel` with that many warps for the arithmetic. A hinted kernel has compiled code of its own."""
    return kernel.replace_hints(num_worker_warps=warps)


def parts_of(tiles: int, blocks: int, steps: int) -> int:
    """Into how many parts to cut each of `tiles` split tiles: a power of two that divides the k steps, 1 for none."""
    parts = 1
    while tiles and parts * 2 * tiles <= blocks and steps % (parts * 2) == 0 and parts < 16:
        parts *= 2
    return parts


def run(a: torch.Tensor, b: torch.Tensor, *, BM: int, BN: int, BK: int, TRANSPOSE_B: bool, WARPS: int) -> torch.Tensor:
    """Return c = a·b in the operands' dtype; a [m, k], b [k, n], c [m, n]. The k steps are constants of the kernels."""
    (m, k), n, size = a.shape, b.shape[1], a.element_size()
    stream = torch.cuda.current_stream()
    c = torch.empty([m, n], dtype=a.dtype, device=a.device)
    if k * size % 16 or n * size % 16:
        # TMA can't address such rows, and elements loaded one by one need a small tile.
        BM, BN, BK, TRANSPOSE_B, WARPS = 64, 64, 32, False, 4
    if TRANSPOSE_B:
        transposed = torch.empty([n, k], dtype=b.dtype, device=b.device)
        ct.launch(stream, (ct.cdiv(k, 64), ct.cdiv(n, 64)), transpose_kernel, (b, transposed, 64))
        b = transposed
    m_tiles, n_tiles, steps = ct.cdiv(m, BM), ct.cdiv(n, BN), ct.cdiv(k, BK)
    tiles, blocks = m_tiles * n_tiles, multiprocessors(a.device)
    parts = parts_of(tiles % blocks, blocks, steps)
    split = tiles % blocks if parts > 1 else 0
    shape = (BM, BN, BK, 8, TRANSPOSE_B)
    if split:
        pieces = torch.empty([split * parts, BM, BN], dtype=torch.float32, device=a.device)
        arguments = (a, b, pieces, m_tiles, n_tiles, steps // parts, parts, *shape)
        ct.launch(stream, (split * parts,), hinted(split_kernel, WARPS), arguments)
    if tiles > split:
        ct.launch(stream, (tiles - split,), hinted(whole_kernel, WARPS), (a, b, c, split, steps, *shape))
    if split:
        ct.launch(stream, (split, BM // STRIP), sum_kernel, (pieces, c, m_tiles, n_tiles, parts, BM, BN, STRIP, 8))
    return c


def _config(BM: int, BN: int, BK: int, warps: int, transpose: bool) -> Config:
    return {"BM": BM, "BN": BN, "BK": BK, "TRANSPOSE_B": transpose, "WARPS": warps}


def default(case: Case) -> Config:
    return _config(128, 256, 128 // case.dtype_size, 8, case.dtype == "fp32")


def space(case: Case) -> list[Config]:
    depth = 128 // case.dtype_size  # one row of a tile fills TMA's widest swizzle, 128 bytes
    shapes = [(128, 128, 8), (128, 256, 8), (256, 128, 8)]
    if case.dtype != "fp32":  # it spills with four warps
        shapes.append((128, 128, 4))
    transposes = [False, True] if case.dtype == "fp32" else [False]
    return [_config(bm, bn, depth, warps, t) for bm, bn, warps in shapes for t in transposes]


KERNEL = Kernel(run=run, default=default, space=space)
