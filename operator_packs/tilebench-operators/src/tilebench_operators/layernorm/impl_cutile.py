"""Layer normalization in cuTile: rows that fit are kept on chip and read once; a longer row is read three times.

The variance is summed from the centred values, so that a large mean costs no digits.
`rows_kernel` compiles once per number of chunks: a row lives in registers as a tuple of chunks, and the length of such
a tuple must be known. That buys the single read without a tile of a power of two, half of whose lanes would be idle.
No load uses TMA: it takes longer to set up than it saves on tiles of a few rows.
"""

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tile_rows import fits_on_chip, hinted, row_default, row_space

WARPS_PER_SM = 24  # left alone, the compiler fetches parameters so early that one block takes the registers of two
ZERO = ct.PaddingMode.ZERO


def centred(t, mean, chunk, cols):
    """t - mean of a chunk [R, T] whose first column is chunk·T, and 0 beyond the row's end."""
    columns = chunk * t.shape[1] + ct.arange(t.shape[1], dtype=ct.int32)[None, :]
    return ct.where(columns < cols, t - mean, 0.0)


@ct.kernel
def rows_kernel(
    x, weight, bias, y, eps: float, ROWS: ct.Constant[int], TILE: ct.Constant[int], CHUNKS: ct.Constant[int]
):  # fmt: skip
    """One block, ROWS rows: x and y are [rows, cols], weight and bias [ROWS, cols] with a row stride of 0.

    CHUNKS·TILE >= cols, and only the last chunk may reach beyond a row's end.
    """
    i = ct.bid(0)
    cols = x.shape[1]
    tiles = ()
    sums = ct.zeros((ROWS, TILE), ct.float32)
    for chunk in ct.static_iter(range(CHUNKS)):
        t = ct.load(x, (i, chunk), (ROWS, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
        tiles += (t,)
        sums += t
    mean = ct.sum(sums, 1, keepdims=True) / cols

    last = centred(tiles[CHUNKS - 1], mean, CHUNKS - 1, cols)
    squares = last * last
    for chunk in ct.static_iter(range(CHUNKS - 1)):
        t = tiles[chunk] - mean
        squares += t * t
    inv_std = ct.rsqrt(ct.sum(squares, 1, keepdims=True) / cols + eps)

    for chunk in ct.static_iter(range(CHUNKS)):
        w = ct.load(weight, (0, chunk), (ROWS, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
        b = ct.load(bias, (0, chunk), (ROWS, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
        result = (tiles[chunk] - mean) * inv_std * w + b
        ct.store(y, (i, chunk), result.astype(y.dtype), allow_tma=False)


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
        arguments = (x_rows, *parameters, y_rows, eps, ROWS, TILE, ct.cdiv(cols, TILE))
        ct.launch(stream, (ct.cdiv(rows, ROWS),), hinted(rows_kernel, WARPS, WARPS_PER_SM), arguments)
    else:
        arguments = (x_rows, weight.view(1, cols), bias.view(1, cols), y_rows, eps, TILE)
        ct.launch(stream, (rows,), hinted(long_row_kernel, WARPS), arguments)
    return y


def default(case: Case) -> Config:
    return row_default(case["rows"], case["K"], case.dtype_size)


def space(case: Case) -> list[Config]:
    return row_space(case["rows"], case["K"], case.dtype_size)


KERNEL = Kernel(run=run, default=default, space=space)
