"""Softmax in Triton: rows that fit are kept on chip and read once; a longer row is read twice (online softmax).

`rows_kernel` compiles once per number of chunks: a row lives in registers as a list of chunks, and the length of such
a list must be known. That buys the single read without a tile of a power of two, half of whose lanes would be idle.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel

from tilebench_operators._rows import fits_on_chip, row_default, row_space


@triton.jit
def rows_kernel(x_ptr, y_ptr, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr, CHUNKS: tl.constexpr):
    """One program, ROWS rows: x and y point to [rows, cols]; CHUNKS·BLOCK >= cols."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    start = row.to(tl.int64) * cols
    lanes = tl.arange(0, BLOCK)[None, :]
    tiles = ()
    maxima = tl.full([ROWS, BLOCK], float("-inf"), tl.float32)
    for chunk in tl.static_range(CHUNKS):
        columns = chunk * BLOCK + lanes
        mask = (row < rows) & (columns < cols)
        x = tl.load(x_ptr + start + columns, mask=mask, other=float("-inf"))
        tiles += (x.to(tl.float32),)
        maxima = tl.maximum(maxima, tiles[chunk])
    maximum = tl.max(maxima, axis=1, keep_dims=True)

    numerators = ()
    sums = tl.zeros([ROWS, BLOCK], tl.float32)
    for chunk in tl.static_range(CHUNKS):
        numerators += (tl.exp(tiles[chunk] - maximum),)
        sums += numerators[chunk]
    scale = 1.0 / tl.sum(sums, axis=1, keep_dims=True)

    for chunk in tl.static_range(CHUNKS):
        columns = chunk * BLOCK + lanes
        y = (numerators[chunk] * scale).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + start + columns, y, mask=(row < rows) & (columns < cols))


@triton.jit
def online_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    """One program, one row in chunks of BLOCK: running maximum and sum per lane first, then the second read."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    maxima = tl.full([BLOCK], float("-inf"), tl.float32)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        mask = start + lanes < cols
        x = tl.load(x_ptr + row * cols + start + lanes, mask=mask, other=float("-inf")).to(tl.float32)
        larger = tl.maximum(maxima, x)
        # A lane that has seen no column yet holds -inf; -inf - -inf would be NaN.
        shift = tl.where(larger == float("-inf"), 0.0, larger)
        sums = sums * tl.exp(maxima - shift) + tl.exp(x - shift)
        maxima = larger
    maximum = tl.max(maxima, axis=0)
    scale = 1.0 / tl.sum(sums * tl.exp(maxima - maximum), axis=0)
    for start in range(0, cols, BLOCK):
        mask = start + lanes < cols
        x = tl.load(x_ptr + row * cols + start + lanes, mask=mask, other=float("-inf")).to(tl.float32)
        y = tl.exp(x - maximum) * scale
        tl.store(y_ptr + row * cols + start + lanes, y.to(y_ptr.dtype.element_ty), mask=mask)


def run(x: torch.Tensor, *, ROWS: int, BLOCK: int, num_warps: int) -> torch.Tensor:
    """Return the softmax of x [rows, cols] over its last axis, in x's dtype."""
    rows, cols = x.shape
    y = torch.empty_like(x)
    if fits_on_chip(cols, ROWS, num_warps):
        chunks = triton.cdiv(cols, BLOCK)
        rows_kernel[(triton.cdiv(rows, ROWS),)](
            x, y, rows, cols, ROWS=ROWS, BLOCK=BLOCK, CHUNKS=chunks, num_warps=num_warps
        )
    else:
        online_kernel[(rows,)](x, y, cols, BLOCK=BLOCK, num_warps=num_warps)
    return y


def default(case: Case) -> Config:
    return row_default(case["rows"], case["cols"], case.dtype_size)


def space(case: Case) -> list[Config]:
    return row_space(case["rows"], case["cols"], case.dtype_size)


KERNEL = Kernel(run=run, default=default, space=space)
