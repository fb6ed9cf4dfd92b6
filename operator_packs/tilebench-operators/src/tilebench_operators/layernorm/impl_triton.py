"""Layer normalization in Triton: rows that fit are kept on chip and read once; a longer row is read three times.

The variance is summed from the centred values, so that a large mean costs no digits.
`rows_kernel` compiles once per number of chunks: a row lives in registers as a list of chunks, and the length of such
a list must be known. That buys the single read without a tile of a power of two, half of whose lanes would be idle.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel

from tilebench_operators._rows import fits_on_chip, row_default, row_space


@triton.jit
def rows_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, rows, cols, eps,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """One program, ROWS rows: x and y point to [rows, cols], weight and bias to [cols]; CHUNKS·BLOCK >= cols."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    start = row.to(tl.int64) * cols
    lanes = tl.arange(0, BLOCK)[None, :]
    tiles = ()
    sums = tl.zeros([ROWS, BLOCK], tl.float32)
    for chunk in tl.static_range(CHUNKS):
        columns = chunk * BLOCK + lanes
        mask = (row < rows) & (columns < cols)
        x = tl.load(x_ptr + start + columns, mask=mask, other=0.0)
        tiles += (x.to(tl.float32),)
        sums += tiles[chunk]
    mean = tl.sum(sums, axis=1, keep_dims=True) / cols

    squares = tl.zeros([ROWS, BLOCK], tl.float32)
    for chunk in tl.static_range(CHUNKS):
        centred = tl.where(chunk * BLOCK + lanes < cols, tiles[chunk] - mean, 0.0)
        squares += centred * centred
    inv_std = tl.rsqrt(tl.sum(squares, axis=1, keep_dims=True) / cols + eps)

    for chunk in tl.static_range(CHUNKS):
        columns = chunk * BLOCK + lanes
        # Every program reads the parameters: they should stay in the caches, which x only passes through. Each row of
        # the tile loads them for itself, in the threads that need them: from the first-level cache that is cheaper
        # than an exchange between threads.
        weight = tl.load(
            tl.broadcast_to(weight_ptr + columns, [ROWS, BLOCK]), mask=columns < cols, eviction_policy="evict_last"
        )
        bias = tl.load(
            tl.broadcast_to(bias_ptr + columns, [ROWS, BLOCK]), mask=columns < cols, eviction_policy="evict_last"
        )
        y = (tiles[chunk] - mean) * inv_std * weight.to(tl.float32) + bias.to(tl.float32)
        tl.store(y_ptr + start + columns, y.to(y_ptr.dtype.element_ty), mask=(row < rows) & (columns < cols))


@triton.jit
def long_row_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, cols, eps, BLOCK: tl.constexpr):
    """One program, one row in chunks of BLOCK: mean, then variance, then the result."""
    start = tl.program_id(0).to(tl.int64) * cols
    lanes = tl.arange(0, BLOCK)
    sums = tl.zeros([BLOCK], tl.float32)
    for first in range(0, cols, BLOCK):
        columns = first + lanes
        sums += tl.load(x_ptr + start + columns, mask=columns < cols, other=0.0).to(tl.float32)
    mean = tl.sum(sums, axis=0) / cols
    squares = tl.zeros([BLOCK], tl.float32)
    for first in range(0, cols, BLOCK):
        columns = first + lanes
        x = tl.load(x_ptr + start + columns, mask=columns < cols, other=0.0).to(tl.float32)
        centred = tl.where(columns < cols, x - mean, 0.0)
        squares += centred * centred
    inv_std = tl.rsqrt(tl.sum(squares, axis=0) / cols + eps)
    for first in range(0, cols, BLOCK):
        columns = first + lanes
        mask = columns < cols
        x = tl.load(x_ptr + start + columns, mask=mask).to(tl.float32)
        weight = tl.load(weight_ptr + columns, mask=mask).to(tl.float32)
        bias = tl.load(bias_ptr + columns, mask=mask).to(tl.float32)
        y = (x - mean) * inv_std * weight + bias
        tl.store(y_ptr + start + columns, y.to(y_ptr.dtype.element_ty), mask=mask)


def run(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5,
    *, ROWS: int, BLOCK: int, num_warps: int,
) -> torch.Tensor:  # fmt: skip
    """Return the layer normalization of x [1, rows, K] over its last axis with weight [K] and bias [K], like x."""
    cols = weight.numel()
    rows = x.numel() // cols
    y = torch.empty_like(x)
    if fits_on_chip(cols, ROWS, num_warps):
        chunks = triton.cdiv(cols, BLOCK)
        rows_kernel[(triton.cdiv(rows, ROWS),)](
            x, weight, bias, y, rows, cols, eps, ROWS=ROWS, BLOCK=BLOCK, CHUNKS=chunks, num_warps=num_warps
        )
    else:
        long_row_kernel[(rows,)](x, weight, bias, y, cols, eps, BLOCK=BLOCK, num_warps=num_warps)
    return y


def default(case: Case) -> Config:
    return row_default(case["rows"], case["K"], case.dtype_size)


def space(case: Case) -> list[Config]:
    return row_space(case["rows"], case["K"], case.dtype_size)


KERNEL = Kernel(run=run, default=default, space=space)
