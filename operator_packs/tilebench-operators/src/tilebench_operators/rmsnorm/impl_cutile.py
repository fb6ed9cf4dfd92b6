"""Root-mean-square normalization in cuTile: rows that fit are kept on chip and read once; a longer row is read twice.

`rows_kernel` compiles once per number of chunks: a row lives in registers as a tuple of chunks, and the length of such
a tuple must be known. That buys the single read without a tile of a power of two, half of whose lanes would be idle.
All loads of a row are under way before the first is used: those of chunks that lie inside have no bounds check. The
weights are loaded AHEAD chunks before their use, since no load passes a store before it.
"""

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._cutile_rows import full_chunks, load, store, warps_per_sm
from tilebench_operators._tile_rows import fits_on_chip, hinted, row_default, row_space

AHEAD = 2
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def rows_kernel(
    x, weight, y, inverse_cols: float, eps: float,
    ROWS: ct.Constant[int], TILE: ct.Constant[int], FULL: ct.Constant[int], CHUNKS: ct.Constant[int],
):  # fmt: skip
    """One block, ROWS rows: x and y are [rows, cols], weight is [ROWS, cols] with a row stride of 0.

    CHUNKS·TILE >= cols, and FULL chunks lie inside. Zeros beyond a row's end add nothing to the sum of squares.
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
    inv_rms = ct.rsqrt(ct.sum(squares, 1, keepdims=True) * inverse_cols + eps)
    weights = ()
    for step in ct.static_iter(range(CHUNKS + AHEAD)):
        if step < CHUNKS:
            weights += (load(weight, (0, step), (ROWS, TILE), step < FULL, ZERO),)
        chunk = step - AHEAD
        if chunk >= 0:
            result = tiles[chunk] * inv_rms * weights[chunk].astype(ct.float32)
            store(y, (i, chunk), result.astype(y.dtype), chunk < FULL)


@ct.kernel
def long_row_kernel(x, weight, y, eps: float, TILE: ct.Constant[int]):
    """One block, one row in chunks of TILE: the mean square, then the result; x and y [rows, cols], weight [1, cols]."""
    row = ct.bid(0)
    chunks = ct.cdiv(x.shape[1], TILE)
    squares = ct.zeros((1, TILE), ct.float32)
    for chunk in range(chunks):
        t = ct.load(x, (row, chunk), (1, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
        squares += t * t
    inv_rms = ct.rsqrt(ct.sum(squares, 1, keepdims=True) / x.shape[1] + eps)
    for chunk in range(chunks):
        t = ct.load(x, (row, chunk), (1, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
        w = ct.load(weight, (0, chunk), (1, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
        ct.store(y, (row, chunk), (t * inv_rms * w).astype(y.dtype), allow_tma=False)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float, *, ROWS: int, TILE: int, WARPS: int) -> torch.Tensor:
    """Return x [1, rows, K] over the root mean square of its last axis, scaled by weight [K], like x."""
    cols = weight.numel()
    x_rows = x.view(-1, cols)
    rows = x_rows.shape[0]
    y = torch.empty_like(x)
    y_rows = y.view(-1, cols)
    stream = torch.cuda.current_stream()
    if fits_on_chip(cols, ROWS, WARPS):
        # Each row of a tile loads the weights for itself, in the threads that need them: a tile [TILE] spread over the
        # rows would be exchanged between threads instead.
        full, chunks = full_chunks(rows, cols, ROWS, TILE), ct.cdiv(cols, TILE)
        arguments = (x_rows, weight.expand(ROWS, cols), y_rows, 1.0 / cols, eps, ROWS, TILE, full, chunks)
        kernel = hinted(rows_kernel, WARPS, warps_per_sm(cols * ROWS, WARPS))
        ct.launch(stream, (ct.cdiv(rows, ROWS),), kernel, arguments)
    else:
        ct.launch(stream, (rows,), hinted(long_row_kernel, WARPS), (x_rows, weight.view(1, cols), y_rows, eps, TILE))
    return y


def default(case: Case) -> Config:
    return row_default(case["rows"], case["K"], case.dtype_size)


def space(case: Case) -> list[Config]:
    return row_space(case["rows"], case["K"], case.dtype_size)


KERNEL = Kernel(run=run, default=default, space=space)
