"""L2 normalization in cuTile: rows that fit are kept on chip and read once; a longer row is read twice.

`rows_kernel` compiles once per number of chunks: a row lives in registers as a tuple of chunks, and the length of such
a tuple must be known. That buys the single read without a tile of a power of two, half of whose lanes would be idle.
All loads of a row are under way before the first is used: those of chunks that lie inside have no bounds check.
"""

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._cutile_rows import full_chunks, load, store
from tilebench_operators._tile_rows import fits_on_chip, hinted, row_default, row_space

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def rows_kernel(
    x, y, eps: float,
    ROWS: ct.Constant[int], TILE: ct.Constant[int], FULL: ct.Constant[int], CHUNKS: ct.Constant[int],
):  # fmt: skip
    """One block, ROWS rows: x and y are [rows, cols]; CHUNKS·TILE >= cols, and FULL chunks lie inside.

    Zeros beyond a row's end add nothing to the sum of squares.
    """
    i = ct.bid(0)
    loaded = ()
    for chunk in ct.static_iter(range(CHUNKS)):
        loaded += (load(x, (i, chunk), (ROWS, TILE), chunk < FULL, ZERO),)
    tiles = ()
    squares = ct.zeros((ROWS, TILE), ct.float32)
    for chunk in ct.static_iter(range(CHUNKS)):
        t = loaded[chunk].astype(ct.float32)
        tiles += (t,)
        squares += t * t
    inv_norm = ct.rsqrt(ct.sum(squares, 1, keepdims=True) + eps)
    for chunk in ct.static_iter(range(CHUNKS)):
        store(y, (i, chunk), (tiles[chunk] * inv_norm).astype(y.dtype), chunk < FULL)


@ct.kernel
def long_row_kernel(x, y, eps: float, TILE: ct.Constant[int]):
    """One block, one row in chunks of TILE: the sum of squares, then the result; x and y are [rows, cols]."""
    row = ct.bid(0)
    chunks = ct.cdiv(x.shape[1], TILE)
    squares = ct.zeros((1, TILE), ct.float32)
    for chunk in range(chunks):
        t = ct.load(x, (row, chunk), (1, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
        squares += t * t
    inv_norm = ct.rsqrt(ct.sum(squares, 1, keepdims=True) + eps)
    for chunk in range(chunks):
        t = ct.load(x, (row, chunk), (1, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
        ct.store(y, (row, chunk), (t * inv_norm).astype(y.dtype), allow_tma=False)


def run(x: torch.Tensor, eps: float, *, ROWS: int, TILE: int, WARPS: int) -> torch.Tensor:
    """Return x [1, rows, K] over the square root of (the sum of squares of its last axis + eps), like x."""
    cols = x.shape[-1]
    x_rows = x.view(-1, cols)
    rows = x_rows.shape[0]
    y = torch.empty_like(x)
    y_rows = y.view(-1, cols)
    stream = torch.cuda.current_stream()
    if fits_on_chip(cols, ROWS, WARPS):
        arguments = (x_rows, y_rows, eps, ROWS, TILE, full_chunks(rows, cols, ROWS, TILE), ct.cdiv(cols, TILE))
        ct.launch(stream, (ct.cdiv(rows, ROWS),), hinted(rows_kernel, WARPS), arguments)
    else:
        ct.launch(stream, (rows,), hinted(long_row_kernel, WARPS), (x_rows, y_rows, eps, TILE))
    return y


def default(case: Case) -> Config:
    return row_default(case["rows"], case["K"], case.dtype_size)


def space(case: Case) -> list[Config]:
    return row_space(case["rows"], case["K"], case.dtype_size)


KERNEL = Kernel(run=run, default=default, space=space)
