"""Mean over the last axis in cuTile: a row that fits is loaded at once and added up; a longer one in chunks.

`rows_kernel` compiles once per number of chunks: a row lives in registers as a tuple of chunks, and the length of such
a tuple must be known. All its loads are under way before the first is used, and chunks that lie inside have no bounds
check. Lanes are added up first, and reduced once.
"""

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._cutile_rows import full_chunks, load
from tilebench_operators._tile_rows import fits_on_chip, hinted, row_default, row_space

MAX_PER_THREAD = 96  # elements in x's own type: more than the normalizations hold, for nothing else is held
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def rows_kernel(
    x, y, inverse_cols: float,
    ROWS: ct.Constant[int], TILE: ct.Constant[int], FULL: ct.Constant[int], CHUNKS: ct.Constant[int],
):  # fmt: skip
    """One block, ROWS rows: x is [rows, cols], y [rows] fp32; CHUNKS·TILE >= cols, and FULL chunks lie inside.

    Zeros beyond a row's end add nothing.
    """
    i = ct.bid(0)
    tiles = ()
    for chunk in ct.static_iter(range(CHUNKS)):
        tiles += (load(x, (i, chunk), (ROWS, TILE), chunk < FULL, ZERO),)
    sums = ct.zeros((ROWS, TILE), ct.float32)
    for chunk in ct.static_iter(range(CHUNKS)):
        sums += tiles[chunk].astype(ct.float32)
    ct.store(y, (i,), ct.sum(sums, 1) * inverse_cols, allow_tma=False)


@ct.kernel
def long_row_kernel(x, y, inverse_cols: float, TILE: ct.Constant[int]):
    """One block, one row in chunks of TILE: x is [rows, cols], y [rows] fp32."""
    row = ct.bid(0)
    sums = ct.zeros((1, TILE), ct.float32)
    for chunk in range(ct.cdiv(x.shape[1], TILE)):
        sums += ct.load(x, (row, chunk), (1, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
    ct.store(y, (row,), ct.sum(sums, 1) * inverse_cols, allow_tma=False)


def run(x: torch.Tensor, dim: int, *, ROWS: int, TILE: int, WARPS: int) -> torch.Tensor:
    """Return the mean of x [M, N] over its last axis (`dim` is 1), [M] fp32."""
    rows, cols = x.shape
    y = torch.empty(rows, dtype=torch.float32, device=x.device)
    stream = torch.cuda.current_stream()
    if fits_on_chip(cols, ROWS, WARPS, MAX_PER_THREAD):
        full, chunks = full_chunks(rows, cols, ROWS, TILE), ct.cdiv(cols, TILE)
        arguments = (x, y, 1.0 / cols, ROWS, TILE, full, chunks)
        ct.launch(stream, (ct.cdiv(rows, ROWS),), hinted(rows_kernel, WARPS), arguments)
    else:
        ct.launch(stream, (rows,), hinted(long_row_kernel, WARPS), (x, y, 1.0 / cols, TILE))
    return y


def default(case: Case) -> Config:
    return row_default(case["M"], case["N"], case.dtype_size)


def space(case: Case) -> list[Config]:
    return row_space(case["M"], case["N"], case.dtype_size)


KERNEL = Kernel(run=run, default=default, space=space)
