"""Kullback-Leibler divergence in cuTile: one block adds up one row, lane by lane, and reduces its lanes once.

`rows_kernel` has no loop, so that loads run ahead of their use as far as there are registers. It compiles once per number
of chunks, for a row is a tuple of chunks, and the length of such a tuple must be known. A longer row is read in a loop.
"""

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._cutile_rows import full_chunks, load
from tilebench_operators._tile_rows import fits_on_chip, hinted

MAX_PER_THREAD = 32  # columns, with a value of each input
ZERO = ct.PaddingMode.ZERO


def terms(true, log_predicted):
    """true·(ln true - log_predicted), and 0 where true is 0: there the logarithm is taken of 1 instead."""
    return true * (ct.log(ct.where(true > 0.0, true, 1.0)) - log_predicted)


@ct.kernel
def rows_kernel(
    log_predicted, true, loss, TILE: ct.Constant[int], FULL: ct.Constant[int], CHUNKS: ct.Constant[int]
):  # fmt: skip
    """One block, one row in CHUNKS chunks of TILE, FULL of which lie inside.

    Both inputs are [rows, cols] fp32, loss [rows] fp32. Beyond a row's end true is 0.
    """
    row = ct.bid(0)
    loaded = ()
    for chunk in ct.static_iter(range(CHUNKS)):
        t = load(true, (row, chunk), (1, TILE), chunk < FULL, ZERO)
        predicted = load(log_predicted, (row, chunk), (1, TILE), chunk < FULL, ZERO)
        loaded += ((t, predicted),)
    sums = ct.zeros((1, TILE), ct.float32)
    for chunk in ct.static_iter(range(CHUNKS)):
        sums += terms(*loaded[chunk])
    ct.store(loss, (row,), ct.sum(sums, 1), check_bounds=False, allow_tma=False)


@ct.kernel
def long_row_kernel(log_predicted, true, loss, TILE: ct.Constant[int]):
    """One block, one row in chunks of TILE; shapes as in `rows_kernel`."""
    row = ct.bid(0)
    sums = ct.zeros((1, TILE), ct.float32)
    for chunk in range(ct.cdiv(true.shape[1], TILE)):
        t = load(true, (row, chunk), (1, TILE), False, ZERO)
        sums += terms(t, load(log_predicted, (row, chunk), (1, TILE), False, ZERO))
    ct.store(loss, (row,), ct.sum(sums, 1))


def run(log_predicted: torch.Tensor, true: torch.Tensor, *, TILE: int, WARPS: int) -> torch.Tensor:
    """Return Σ true·(ln true - log_predicted) over the last axis of two [rows, cols], [rows] fp32; 0·ln 0 is 0."""
    rows, cols = true.shape
    loss = torch.empty(rows, dtype=torch.float32, device=true.device)
    stream = torch.cuda.current_stream()
    if fits_on_chip(cols, 1, WARPS, MAX_PER_THREAD):
        arguments = (log_predicted, true, loss, TILE, full_chunks(rows, cols, 1, TILE), ct.cdiv(cols, TILE))
        ct.launch(stream, (rows,), hinted(rows_kernel, WARPS), arguments)
    else:
        ct.launch(stream, (rows,), hinted(long_row_kernel, WARPS), (log_predicted, true, loss, TILE))
    return loss


def default(case: Case) -> Config:
    # Few rows get more warps each, so that the resident blocks of 132 SMs still fill them. A thread loads 16 bytes of
    # each chunk, or twice as much where the loop waits for every chunk.
    warps = 8 if (case["rows"] <= 1024 and case["cols"] >= 2048) or 4096 < case["cols"] <= 8192 else 4
    fits = fits_on_chip(case["cols"], 1, warps, MAX_PER_THREAD)
    return {"TILE": (128 if fits else 256) * warps, "WARPS": warps}


def space(case: Case) -> list[Config]:
    return [
        {"TILE": tile, "WARPS": warps}
        for tile in (512, 1024, 2048, 4096)
        for warps in (4, 8)
        if tile <= max(case["cols"], 512) and 4 <= tile // (32 * warps) <= 32
    ]


KERNEL = Kernel(run=run, default=default, space=space)
