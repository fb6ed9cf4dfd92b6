"""Layer normalization in cuTile: rows that fit are kept on chip and read once; a longer row is read three times.

The variance is summed from the centred values, so that a large mean costs no digits.
`rows_kernel` compiles once per number of chunks: a row lives in registers as a tuple of chunks, and the length of such
a tuple must be known. That buys the single read without a tile of a power of two, half of whose lanes would be idle.
All loads of a row are under way before the first is used: those of chunks that lie inside have no bounds check. The
parameters are loaded AHEAD chunks before their use, since no load passes a store before it.
"""

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._cutile_rows import full_chunks, load, store, warps_per_sm
from tilebench_operators._tile_rows import fits_on_chip, hinted, row_default, row_space

AHEAD = 2
ZERO = ct.PaddingMode.ZERO


def centred(t, mean, chunk, cols):
    """t - mean of a chunk [R, T] whose first column is chunk·T, and 0 beyond the row's end."""
    columns = chunk * t.shape[1] + ct.arange(t.shape[1], dtype=ct.int32)[None, :]
    return ct.where(columns < cols, t - mean, 0.0)


@ct.kernel
def rows_kernel(
    x, weight, bias, y, inverse_cols: float, eps: float,
    ROWS: ct.Constant[int], TILE: ct.Constant[int], FULL: ct.Constant[int], CHUNKS: ct.Constant[int],
):  # fmt: skip
    """One block, ROWS rows: x and y are [rows, cols], weight and bias [ROWS, cols] with a row stride of 0.

    CHUNKS·TILE >= cols. FULL chunks lie inside, and only the last one may reach beyond a row's end.
    """
    i = ct.bid(0)
    loaded = ()
    for chunk in ct.static_iter(range(CHUNKS)):
        loaded += (load(x, (i, chunk), (ROWS, TILE), chunk < FULL, ZERO),)
    tiles = ()
    sums = ct.zeros((ROWS, TILE), ct.float32)
    for chunk in ct.static_iter(range(CHUNKS)):
        t = loaded[chunk].astype(ct.float32)
        tiles += (t,)
        sums += t
    mean = ct.sum(sums, 1, keepdims=True) * inverse_cols

    distances = ()
    squares = ct.zeros((ROWS, TILE), ct.float32)
    for chunk in ct.static_iter(range(CHUNKS)):
        t = tiles[chunk] - mean if chunk < FULL else centred(tiles[chunk], mean, chunk, x.shape[1])
        distances += (t,)
        squares += t * t
    inv_std = ct.rsqrt(ct.sum(squares, 1, keepdims=True) * inverse_cols + eps)

    parameters = ()
    for step in ct.static_iter(range(CHUNKS + AHEAD)):
        if step < CHUNKS:
            w = load(weight, (0, step), (ROWS, TILE), step < FULL, ZERO)
            b = load(bias, (0, step), (ROWS, TILE), step < FULL, ZERO)
            parameters += ((w, b),)
        chunk = step - AHEAD
        if chunk >= 0:
            w, b = parameters[chunk]
            result = distances[chunk] * inv_std * w.astype(ct.float32) + b.astype(ct.float32)
            store(y, (i, chunk), result.astype(y.dtype), chunk < FULL)


@ct.kernel
def long_row_kernel(x, weight, bias, y, eps: float, TILE: ct.Constant[int]):
    """One block, one row in chunks of TILE: mean, then variance, then the result.

    x and y are [rows, cols], weight and bias [1, cols].
    """
    row = ct.bid(0)
    cols = x.shape[1]
    chunks = ct.cdiv(cols, TILE)
    sums = ct.zeros((1, TILE), ct.float32)
    for chunk in range(chunks):
        sums += ct.load(x, (row, chunk), (1, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
    mean = ct.sum(sums, 1, keepdims=True) / cols
    squares = ct.zeros((1, TILE), ct.float32)
    for chunk in range(chunks):
        t = ct.load(x, (row, chunk), (1, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
        t = centred(t, mean, chunk, cols)
        squares += t * t
    inv_std = ct.rsqrt(ct.sum(squares, 1, keepdims=True) / cols + eps)
    for chunk in range(chunks):
        t = ct.load(x, (row, chunk), (1, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
        w = ct.load(weight, (0, chunk), (1, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
        b = ct.load(bias, (0, chunk), (1, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
        ct.store(y, (row, chunk), ((t - mean) * inv_std * w + b).astype(y.dtype), allow_tma=False)


def run(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5, *, ROWS: int, TILE: int, WARPS: int
) -> torch.Tensor:
    """Return the layer normalization of x [1, rows, K] over its last axis with weight [K] and bias [K], like x."""
    cols = weight.numel()
    x_rows = x.view(-1, cols)
    rows = x_rows.shape[0]
    y = torch.empty_like(x)
    y_rows = y.view(-1, cols)
    stream = torch.cuda.current_stream()
    if fits_on_chip(cols, ROWS, WARPS):
        # Each row of a tile loads the parameters for itself, in the threads that need them: a tile [TILE] spread over
        # the rows would be exchanged between threads instead.
        parameters = (weight.expand(ROWS, cols), bias.expand(ROWS, cols))
        full, chunks = full_chunks(rows, cols, ROWS, TILE), ct.cdiv(cols, TILE)
        arguments = (x_rows, *parameters, y_rows, 1.0 / cols, eps, ROWS, TILE, full, chunks)
        kernel = hinted(rows_kernel, WARPS, warps_per_sm(cols * ROWS, WARPS))
        ct.launch(stream, (ct.cdiv(rows, ROWS),), kernel, arguments)
    else:
        arguments = (x_rows, weight.view(1, cols), bias.view(1, cols), y_rows, eps, TILE)
        ct.launch(stream, (rows,), hinted(long_row_kernel, WARPS), arguments)
    return y


def default(case: Case) -> Config:
    return row_default(case["rows"], case["K"], case.dtype_size)


def space(case: Case) -> list[Config]:
    return row_space(case["rows"], case["K"], case.dtype_size)


KERNEL = Kernel(run=run, default=default, space=space)
