"""Cross entropy in cuTile: one block takes several rows; the logits are read once, and kept on chip where they fit.

The target's logit is picked from the chunks on chip: a load of its own would wait for the target's first.
`rows_kernel` compiles once per number of chunks: a row lives in registers as a tuple of chunks, and the length of such
a tuple must be known. No load uses TMA: it takes longer to set up than it saves on tiles of a few rows.
"""

import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tile_rows import fits_on_chip, hinted, row_default, row_space

LOG2_E = math.log2(math.e)  # exp(x) = 2^(x·log2 e), and the GPU has an instruction for 2^x
MIN_BLOCKS = 1  # rows are so short that reductions inside a warp, without barriers, are worth more than many blocks
NEG_INF, ZERO = ct.PaddingMode.NEG_INF, ct.PaddingMode.ZERO


def exp(x):
    """e^x; results below 2^-126, which are nothing beside a row's sum of at least 1, become 0."""
    return ct.exp2(x * LOG2_E, flush_to_zero=True)


def at_target(z, chunk, target):
    """The chunk z [R, T], whose first column is chunk·T, with 0 in every column but target [R, 1]."""
    columns = chunk * z.shape[1] + ct.arange(z.shape[1], dtype=ct.int32)[None, :]
    return ct.where(columns == target, z, 0.0)


@ct.kernel
def rows_kernel(
    logits, targets, loss, ROWS: ct.Constant[int], TILE: ct.Constant[int], CHUNKS: ct.Constant[int]
):  # fmt: skip
    """One block, ROWS rows: logits are [B, C], targets [B, 1] int64, loss [B, 1]; CHUNKS·TILE >= C.

    Beyond a row's end is -inf, whose exp is 0. Rows beyond B are all -inf and become NaN, which is not stored.
    """
    i = ct.bid(0)
    target = ct.load(targets, (i, 0), (ROWS, 1), padding_mode=ZERO, allow_tma=False).astype(ct.int32)
    tiles = ()
    maxima = ct.full((ROWS, TILE), -math.inf, ct.float32)
    for chunk in ct.static_iter(range(CHUNKS)):
        z = ct.load(logits, (i, chunk), (ROWS, TILE), padding_mode=NEG_INF, allow_tma=False).astype(ct.float32)
        tiles += (z,)
        maxima = ct.maximum(maxima, z)
    maximum = ct.max(maxima, 1, keepdims=True)
    sums = ct.zeros((ROWS, TILE), ct.float32)
    picked = ct.zeros((ROWS, TILE), ct.float32)
    for chunk in ct.static_iter(range(CHUNKS)):
        sums += exp(tiles[chunk] - maximum)
        picked += at_target(tiles[chunk], chunk, target)
    result = maximum + ct.log(ct.sum(sums, 1, keepdims=True)) - ct.sum(picked, 1, keepdims=True)
    ct.store(loss, (i, 0), result.astype(loss.dtype), allow_tma=False)


@ct.kernel
def long_row_kernel(logits, targets, loss, TILE: ct.Constant[int]):
    """One block, one row in chunks of TILE, with a running maximum and sum per lane; shapes as in `rows_kernel`."""
    row = ct.bid(0)
    target = ct.load(targets, (row, 0), (1, 1), allow_tma=False).astype(ct.int32)
    maxima = ct.full((1, TILE), -math.inf, ct.float32)
    sums = ct.zeros((1, TILE), ct.float32)
    picked = ct.zeros((1, TILE), ct.float32)
    for chunk in range(ct.cdiv(logits.shape[1], TILE)):
        z = ct.load(logits, (row, chunk), (1, TILE), padding_mode=NEG_INF, allow_tma=False).astype(ct.float32)
        larger = ct.maximum(maxima, z)
        # A lane that has seen no column yet holds -inf; -inf - -inf would be NaN.
        shift = ct.where(larger == -math.inf, 0.0, larger)
        sums = sums * exp(maxima - shift) + exp(z - shift)
        picked += at_target(z, chunk, target)
        maxima = larger
    maximum = ct.max(maxima, 1, keepdims=True)
    total = ct.sum(sums * exp(maxima - maximum), 1, keepdims=True)
    result = maximum + ct.log(total) - ct.sum(picked, 1, keepdims=True)
    ct.store(loss, (row, 0), result.astype(loss.dtype), allow_tma=False)


def run(logits: torch.Tensor, targets: torch.Tensor, *, ROWS: int, TILE: int, WARPS: int) -> torch.Tensor:
    """Return the cross entropy [B] of logits [B, C] with targets [B] int64, in the logits' dtype."""
    B, C = logits.shape
    loss = torch.empty(B, dtype=logits.dtype, device=logits.device)
    columns = (targets.view(B, 1), loss.view(B, 1))
    stream = torch.cuda.current_stream()
    if fits_on_chip(C, ROWS, WARPS):
        arguments = (logits, *columns, ROWS, TILE, ct.cdiv(C, TILE))
        ct.launch(stream, (ct.cdiv(B, ROWS),), hinted(rows_kernel, WARPS), arguments)
    else:
        ct.launch(stream, (B,), hinted(long_row_kernel, WARPS), (logits, *columns, TILE))
    return loss


def default(case: Case) -> Config:
    return row_default(case["B"], case["C"], case.dtype_size, MIN_BLOCKS)


def space(case: Case) -> list[Config]:
    return row_space(case["B"], case["C"], case.dtype_size, MIN_BLOCKS)


KERNEL = Kernel(run=run, default=default, space=space)
