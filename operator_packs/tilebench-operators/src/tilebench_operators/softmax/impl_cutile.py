"""Softmax in cuTile: a row that fits is kept on chip and read once; a longer row is read twice (online softmax)."""

import functools
import math

import cuda.tile as ct
import torch

from tilebench_core import Case, Config, Kernel

MAX_TILE = 16384  # columns; a longer row would not stay in the registers of one block
LOG2_E = math.log2(math.e)  # exp(x) = 2^(x·log2 e), and the GPU has an instruction for 2^x
NEG_INF = ct.PaddingMode.NEG_INF


@ct.kernel
def row_kernel(x, y, TILE: ct.Constant[int]):
    """One block, one row: x and y are [rows, cols], TILE >= cols. What lies beyond the row is -inf, whose exp is 0."""
    row = ct.bid(0)
    # TMA takes longer to set up than it saves on a tile of one row.
    t = ct.load(x, (row, 0), (1, TILE), padding_mode=NEG_INF, allow_tma=False).astype(ct.float32)
    numerator = ct.exp2((t - ct.max(t)) * LOG2_E)
    result = numerator * (1.0 / ct.sum(numerator))
    ct.store(y, (row, 0), result.astype(y.dtype), allow_tma=False)


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
        sums = sums * ct.exp2((maxima - shift) * LOG2_E) + ct.exp2((t - shift) * LOG2_E)
        maxima = larger
    maximum = ct.max(maxima)
    scale = 1.0 / ct.sum(sums * ct.exp2((maxima - maximum) * LOG2_E))
    for chunk in range(chunks):
        t = ct.load(x, (row, chunk), (1, TILE), padding_mode=NEG_INF, allow_tma=False).astype(ct.float32)
        result = ct.exp2((t - maximum) * LOG2_E) * scale
        ct.store(y, (row, chunk), result.astype(y.dtype), allow_tma=False)


@functools.cache
def hinted(kernel: ct.kernel, warps: int) -> ct.kernel:
    """`kernel` for blocks of `warps` warps. A hinted kernel has compiled code of its own, so there is one of each."""
    return kernel.replace_hints(num_worker_warps=warps)


def run(x: torch.Tensor, *, TILE: int, WARPS: int) -> torch.Tensor:
    """Return the softmax of x [rows, cols] over its last axis, in x's dtype."""
    rows, cols = x.shape
    y = torch.empty_like(x)
    kernel = row_kernel if cols <= TILE else online_kernel
    ct.launch(torch.cuda.current_stream(), (rows,), hinted(kernel, WARPS), (x, y, TILE))
    return y


def default(case: Case) -> Config:
    tile = max(128, 1 << (case["cols"] - 1).bit_length())
    if tile > MAX_TILE:
        return {"TILE": 4096, "WARPS": 8}
    return {"TILE": tile, "WARPS": 8 if tile > 4096 else 4}


def space(case: Case) -> list[Config]:
    tile = max(128, 1 << (case["cols"] - 1).bit_length())
    tiles = sorted({1024, 2048, 4096} | ({tile} if tile <= MAX_TILE else set()))
    return [{"TILE": tile, "WARPS": warps} for tile in tiles for warps in (4, 8)]


KERNEL = Kernel(run=run, default=default, space=space)
