"""Index of the maximum over the last axis in cuTile: rows that fit are kept on chip; of a longer one each lane keeps
its best value. x is read once in both ways, and columns are int32 all along.

`rows_kernel` compiles once per number of chunks: a row lives in registers as a tuple of chunks, and the length of such
a tuple must be known. All its loads are under way before the first is used, and two plain passes over registers, for
the maximum and for its lowest column, are cheaper than to carry columns along.
Chunks that lie inside are loaded without a bounds check.
"""

import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._cutile_rows import full_chunks, load
from tilebench_operators._tile_rows import fits_on_chip, hinted, row_default, row_space

MAX_PER_THREAD = 96  # elements in x's own type: more than the normalizations hold, for nothing else is held
NEG_INF = ct.PaddingMode.NEG_INF
NO_COLUMN = 2**31 - 1


@ct.kernel
def rows_kernel(
    x, y, ROWS: ct.Constant[int], TILE: ct.Constant[int], FULL: ct.Constant[int], CHUNKS: ct.Constant[int]
):  # fmt: skip
    """One block, ROWS rows: x is [rows, cols], y [rows, 1] int64; CHUNKS·TILE >= cols, and FULL chunks lie inside.

    Beyond a row's end is -inf.
    """
    i = ct.bid(0)
    tiles = ()
    for chunk in ct.static_iter(range(CHUNKS)):
        tiles += (load(x, (i, chunk), (ROWS, TILE), chunk < FULL, NEG_INF),)
    maxima = tiles[0]
    for chunk in ct.static_iter(range(1, CHUNKS)):
        maxima = ct.maximum(maxima, tiles[chunk])
    maximum = ct.max(maxima, 1, keepdims=True)

    lanes = ct.arange(TILE, dtype=ct.int32)[None, :]
    lowest = ct.full((ROWS, TILE), NO_COLUMN, ct.int32)
    for chunk in ct.static_iter(range(CHUNKS - 1, -1, -1)):  # backwards: the lowest column has the last word
        lowest = ct.where(tiles[chunk] == maximum, lanes + chunk * TILE, lowest)
    ct.store(y, (i, 0), ct.min(lowest, 1, keepdims=True).astype(ct.int64), allow_tma=False)


@ct.kernel
def long_row_kernel(x, y, TILE: ct.Constant[int]):
    """One block, one row in chunks of TILE: x is [rows, cols], y [rows, 1] int64.

    A lane meets its chunks in ascending order and changes its mind for strictly larger values only, so it holds its
    lowest best column; among lanes with the same best value the lowest column wins.
    """
    row = ct.bid(0)
    best = ct.full((1, TILE), -math.inf, ct.float32)
    best_chunks = ct.zeros((1, TILE), ct.int32)  # right for a row of -inf, too
    for chunk in range(ct.cdiv(x.shape[1], TILE)):
        t = ct.load(x, (row, chunk), (1, TILE), padding_mode=NEG_INF, allow_tma=False).astype(ct.float32)
        larger = t > best
        best = ct.where(larger, t, best)
        best_chunks = ct.where(larger, chunk, best_chunks)
    columns = best_chunks * TILE + ct.arange(TILE, dtype=ct.int32)[None, :]
    candidates = ct.where(best == ct.max(best, 1, keepdims=True), columns, NO_COLUMN)
    ct.store(y, (row, 0), ct.min(candidates, 1, keepdims=True).astype(ct.int64), allow_tma=False)


def run(x: torch.Tensor, dim: int, *, ROWS: int, TILE: int, WARPS: int) -> torch.Tensor:
    """Return the index of the maximum of x [M, N] over its last axis (`dim` is 1), the lowest on ties, [M] int64."""
    rows, cols = x.shape
    y = torch.empty(rows, dtype=torch.int64, device=x.device)
    column = y.view(rows, 1)
    stream = torch.cuda.current_stream()
    if fits_on_chip(cols, ROWS, WARPS, MAX_PER_THREAD):
        arguments = (x, column, ROWS, TILE, full_chunks(rows, cols, ROWS, TILE), ct.cdiv(cols, TILE))
        ct.launch(stream, (ct.cdiv(rows, ROWS),), hinted(rows_kernel, WARPS), arguments)
    else:
        ct.launch(stream, (rows,), hinted(long_row_kernel, WARPS), (x, column, TILE))
    return y


def default(case: Case) -> Config:
    return row_default(case["M"], case["N"], case.dtype_size)


def space(case: Case) -> list[Config]:
    return row_space(case["M"], case["N"], case.dtype_size)


KERNEL = Kernel(run=run, default=default, space=space)
