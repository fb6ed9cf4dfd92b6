"""Softmax in cuTile: rows that fit are kept on chip and read once; a longer row is read twice (online softmax).

`rows_kernel` compiles once per number of chunks: a row lives in registers as a tuple of chunks, and the length of such
a tuple must be known. That buys the single read without a tile of a power of two, half of whose lanes would be idle.
All loads of a row are under way before the first is used: those of chunks that lie inside have no bounds check.
"""

import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._cutile_rows import full_chunks, load, store
from tilebench_operators._tile_rows import fits_on_chip, hinted, row_default, row_space

LOG2_E = math.log2(math.e)  # exp(x) = 2^(x·log2 e), and the GPU has an instruction for 2^x
NEG_INF = ct.PaddingMode.NEG_INF


def exp(x):
    """e^x; results below 2^-126, which are nothing beside a row's sum of at least 1, become 0."""
    return ct.exp2(x * LOG2_E, flush_to_zero=True)


@ct.kernel
def rows_kernel(
    x, y, ROWS: ct.Constant[int], TILE: ct.Constant[int], FULL: ct.Constant[int], CHUNKS: ct.Constant[int]
):  # fmt: skip
    """One block, ROWS rows: x and y are [rows, cols]; CHUNKS·TILE >= cols, and FULL chunks lie inside.

    Beyond a row's end is -inf, whose exp is 0. Rows beyond the last are all -inf and become NaN, which is not stored.
    """
    i = ct.bid(0)
    tiles = ()
    for chunk in ct.static_iter(range(CHUNKS)):
        tiles += (load(x, (i, chunk), (ROWS, TILE), chunk < FULL, NEG_INF),)
    maxima = tiles[0]
    for chunk in ct.static_iter(range(1, CHUNKS)):
        maxima = ct.maximum(maxima, tiles[chunk])
    scaled_maximum = ct.max(maxima, 1, keepdims=True).astype(ct.float32) * LOG2_E

    numerators = ()
    sums = ct.zeros((ROWS, TILE), ct.float32)
    for chunk in ct.static_iter(range(CHUNKS)):
        # exp(x - maximum) with one fused multiplication; the rounding of scaled_maximum cancels in the quotient.
        numerator = ct.exp2(tiles[chunk].astype(ct.float32) * LOG2_E - scaled_maximum, flush_to_zero=True)
        numerators += (numerator,)
        sums += numerator
    scale = ct.truediv(1.0, ct.sum(sums, 1, keepdims=True), rounding_mode=ct.RoundingMode.APPROX)

    for chunk in ct.static_iter(range(CHUNKS)):
        store(y, (i, chunk), (numerators[chunk] * scale).astype(y.dtype), chunk < FULL)


@ct.kernel
def online_kernel(x, y, TILE: ct.Constant[int]):
    """One block, one row in chunks of TILE: running maximum and sum per lane first, then the second read."""
    row = ct.bid(0)
    chunks = ct.cdiv(x.shape[1], TILE)
    maxima = ct.full((1, TILE), -math.inf, ct.float32)
    sums = ct.zeros((1, TILE), ct.float32)
    for chunk in range(chunks):
        t = ct.load(x, (row, chunk), (1, TILE), padding_mode=NEG_INF, allow_tma=False).astype(ct.float32)
        larger = ct.maximum(maxima, t)
        # A lane that has seen no column yet holds -inf; -inf - -inf would be NaN.
        shift = ct.where(larger == -math.inf, 0.0, larger)
        sums = sums * exp(maxima - shift) + exp(t - shift)
        maxima = larger
    maximum = ct.max(maxima, 1, keepdims=True)
    scale = 1.0 / ct.sum(sums * exp(maxima - maximum), 1, keepdims=True)
    for chunk in range(chunks):
        t = ct.load(x, (row, chunk), (1, TILE), padding_mode=NEG_INF, allow_tma=False).astype(ct.float32)
        ct.store(y, (row, chunk), (exp(t - maximum) * scale).astype(y.dtype), allow_tma=False)


def run(x: torch.Tensor, *, ROWS: int, TILE: int, WARPS: int) -> torch.Tensor:
    """Return the softmax of x [rows, cols] over its last axis, in x's dtype."""
    rows, cols = x.shape
    y = torch.empty_like(x)
    stream = torch.cuda.current_stream()
    if fits_on_chip(cols, ROWS, WARPS):
        arguments = (x, y, ROWS, TILE, full_chunks(rows, cols, ROWS, TILE), ct.cdiv(cols, TILE))
        ct.launch(stream, (ct.cdiv(rows, ROWS),), hinted(rows_kernel, WARPS), arguments)
    else:
        ct.launch(stream, (rows,), hinted(online_kernel, WARPS), (x, y, TILE))
    return y


def default(case: Case) -> Config:
    return row_default(case["rows"], case["cols"], case.dtype_size)


def space(case: Case) -> list[Config]:
    return row_space(case["rows"], case["cols"], case.dtype_size)


KERNEL = Kernel(run=run, default=default, space=space)
