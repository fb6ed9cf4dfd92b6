"""Cross entropy in cuTile: one block takes several rows; the logits are read once, and kept on chip where they fit.

`rows_kernel` compiles once per number of chunks: a row lives in registers as a tuple of chunks, and the length of such
a tuple must be known. All its loads are under way before the first is used, and chunks that lie inside have no bounds
check. A short row is spread over half a warp, so that one reduction inside a warp serves two rows.
"""

import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._cutile_rows import full_chunks, load, store
from tilebench_operators._tile_rows import fits_on_chip, hinted, row_default

LN_2, LOG2_E = math.log(2), math.log2(math.e)  # exp(x) = 2^(x·log2 e): the GPU has instructions for 2^x and log2
SHORT = 768  # 48 columns for each thread of half a warp
NEG_INF, ZERO = ct.PaddingMode.NEG_INF, ct.PaddingMode.ZERO


def exp(x):
    """e^x; results below 2^-126, which are nothing beside a row's sum of at least 1, become 0."""
    return ct.exp2(x * LOG2_E, flush_to_zero=True)


@ct.kernel
def rows_kernel(
    logits, targets, loss,
    ROWS: ct.Constant[int], TILE: ct.Constant[int], FULL: ct.Constant[int], CHUNKS: ct.Constant[int],
):  # fmt: skip
    """One block, ROWS rows: logits are [B, C], targets [B, 1] int64, loss [B, 1]; CHUNKS·TILE >= C.

    FULL chunks lie inside; it is above 0 only if all rows do. Beyond a row's end is -inf, whose exp is 0. Rows beyond B
    are all -inf and become NaN, which is not stored.
    """
    i = ct.bid(0)
    target = load(targets, (i, 0), (ROWS, 1), FULL > 0, ZERO).astype(ct.int32)
    tiles = ()
    for chunk in ct.static_iter(range(CHUNKS)):
        tiles += (load(logits, (i, chunk), (ROWS, TILE), chunk < FULL, NEG_INF),)
    rows = i * ROWS + ct.arange(ROWS, dtype=ct.int32)[:, None]
    picked = ct.gather(logits, (rows, target), check_bounds=FULL == 0).astype(ct.float32)

    # The compiler puts a load where its result is used first. Both of these are used early only in form, as no target
    # is negative: so the target travels together with the row, and its logit during the reduction.
    nothing = ct.where(target < 0, 0.0, -math.inf).astype(logits.dtype)
    zeros = ct.where(target < 0, picked, 0.0)

    maxima = ct.maximum(tiles[0], nothing)
    for chunk in ct.static_iter(range(1, CHUNKS)):
        maxima = ct.maximum(maxima, tiles[chunk])
    scaled_maximum = ct.max(maxima, 1, keepdims=True).astype(ct.float32) * LOG2_E
    sums = ct.broadcast_to(zeros, (ROWS, TILE))
    for chunk in ct.static_iter(range(CHUNKS)):
        sums += ct.exp2(tiles[chunk].astype(ct.float32) * LOG2_E - scaled_maximum, flush_to_zero=True)
    result = (scaled_maximum + ct.log2(ct.sum(sums, 1, keepdims=True))) * LN_2 - picked
    store(loss, (i, 0), result.astype(loss.dtype), FULL > 0)


@ct.kernel
def long_row_kernel(logits, targets, loss, TILE: ct.Constant[int]):
    """One block, one row in chunks of TILE, with a running maximum and sum per lane; shapes as in `rows_kernel`."""
    row = ct.bid(0)
    target = ct.load(targets, (row, 0), (1, 1), allow_tma=False).astype(ct.int32)
    picked = ct.gather(logits, (row, target)).astype(ct.float32)
    maxima = ct.full((1, TILE), -math.inf, ct.float32)
    sums = ct.zeros((1, TILE), ct.float32)
    for chunk in range(ct.cdiv(logits.shape[1], TILE)):
        z = ct.load(logits, (row, chunk), (1, TILE), padding_mode=NEG_INF, allow_tma=False).astype(ct.float32)
        larger = ct.maximum(maxima, z)
        # A lane that has seen no column yet holds -inf; -inf - -inf would be NaN.
        shift = ct.where(larger == -math.inf, 0.0, larger)
        sums = sums * exp(maxima - shift) + exp(z - shift)
        maxima = larger
    maximum = ct.max(maxima, 1, keepdims=True)
    total = ct.sum(sums * exp(maxima - maximum), 1, keepdims=True)
    ct.store(loss, (row, 0), (maximum + ct.log(total) - picked).astype(loss.dtype), allow_tma=False)


def run(logits: torch.Tensor, targets: torch.Tensor, *, ROWS: int, TILE: int, WARPS: int) -> torch.Tensor:
    """Return the cross entropy [B] of logits [B, C] with targets [B] int64, in the logits' dtype."""
    B, C = logits.shape
    loss = torch.empty(B, dtype=logits.dtype, device=logits.device)
    columns = (targets.view(B, 1), loss.view(B, 1))
    stream = torch.cuda.current_stream()
    if fits_on_chip(C, ROWS, WARPS):
        arguments = (logits, *columns, ROWS, TILE, full_chunks(B, C, ROWS, TILE), ct.cdiv(C, TILE))
        ct.launch(stream, (ct.cdiv(B, ROWS),), hinted(rows_kernel, WARPS), arguments)
    else:
        ct.launch(stream, (B,), hinted(long_row_kernel, WARPS), (logits, *columns, TILE))
    return loss


def _config(together: int, warps: int, dtype_size: int) -> Config:
    """A thread loads 16 bytes of each chunk."""
    return {"ROWS": together, "TILE": 32 * warps // together * (16 // dtype_size), "WARPS": warps}


def default(case: Case) -> Config:
    if case["C"] > SHORT:
        return row_default(case["B"], case["C"], case.dtype_size)
    # Two rows per warp, or one where that leaves fewer than two blocks for each of 132 SMs.
    return _config(8 if case["B"] >= 2112 else 4, 4, case.dtype_size)


def space(case: Case) -> list[Config]:
    fitting = [
        _config(together, warps, case.dtype_size)
        for warps in (4, 8)
        for together in (1, 2, 4, 8, 16)
        if together <= 2 * warps and fits_on_chip(case["C"], together, warps)
    ]
    return fitting or [_config(1, 4, case.dtype_size), _config(1, 8, case.dtype_size)]


KERNEL = Kernel(run=run, default=default, space=space)
