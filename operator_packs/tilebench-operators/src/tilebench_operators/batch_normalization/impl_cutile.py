"""Batch normalization in cuTile, three launches: partial sums of row groups, statistics per channel, application.

Sums are two-level and free of atomics, so results repeat bit by bit. They are taken of x[n, c] - x[0, c]: a large mean
or a tiny variance then cancels no digits in the difference of the mean square and the squared mean.
No load uses TMA: its blocks would take all registers of an SM.
"""

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors

from tilebench_operators._tile_rows import hinted

STATISTICS_CHANNELS = 16  # 64 bytes of each partial row; narrow, so that 1024 channels make 64 blocks
STATISTICS_PARTS = 64
APPLY_CHANNELS = 512  # four for each of 128 threads, the widest load of fp32 statistics: x is laid out like them
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def partial_kernel(x, partials, ROWS: ct.Constant[int], TILE: ct.Constant[int]):
    """One block, one group of rows of TILE channels: x is [N, C], partials [2, parts, C] fp32.

    The group is every parts-th block of ROWS rows, so that all blocks together walk down x side by side.
    """
    j, part, parts = ct.bid(0), ct.bid(1), ct.num_blocks(1)
    N = x.shape[0]
    pivot = ct.load(x, (0, j), (1, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
    sums = ct.zeros((ROWS, TILE), ct.float32)
    squares = ct.zeros((ROWS, TILE), ct.float32)
    for i in range(part, ct.cdiv(N, ROWS), parts):
        t = ct.load(x, (i, j), (ROWS, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
        inside = i * ROWS + ct.arange(ROWS, dtype=ct.int32)[:, None] < N
        shifted = ct.where(inside, t - pivot, 0.0)
        sums += shifted
        squares += shifted * shifted
    ct.store(partials, (0, part, j), ct.sum(sums, 0).reshape((1, 1, TILE)), allow_tma=False)
    ct.store(partials, (1, part, j), ct.sum(squares, 0).reshape((1, 1, TILE)), allow_tma=False)


@ct.kernel
def statistics_kernel(x, partials, statistics, eps: float, PARTS: ct.Constant[int], TILE: ct.Constant[int]):
    """One block, TILE channels: adds the partials [2, parts, C]; statistics [2, C] are mean and 1/deviation."""
    j = ct.bid(0)
    sums = ct.zeros((1, PARTS, TILE), ct.float32)
    squares = ct.zeros((1, PARTS, TILE), ct.float32)
    for i in range(ct.cdiv(partials.shape[1], PARTS)):
        sums += ct.load(partials, (0, i, j), (1, PARTS, TILE), padding_mode=ZERO, allow_tma=False)
        squares += ct.load(partials, (1, i, j), (1, PARTS, TILE), padding_mode=ZERO, allow_tma=False)
    N = x.shape[0]
    pivot = ct.load(x, (0, j), (1, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
    shift = ct.sum(sums, 1) / N
    variance = ct.maximum(ct.sum(squares, 1) / N - shift * shift, 0.0)
    ct.store(statistics, (0, j), pivot + shift, allow_tma=False)
    ct.store(statistics, (1, j), ct.rsqrt(variance + eps), allow_tma=False)


@ct.kernel
def apply_kernel(x, gamma, beta, statistics, y, ROWS: ct.Constant[int], TILE: ct.Constant[int]):
    """One block, ROWS rows of TILE channels: x and y are [N, C], gamma and beta [1, C], statistics [2, C].

    The rows are tiles of their own, all laid out over the threads like the parameters' tiles. Those beyond N repeat
    row N - 1, for a tile must not lie outside of x.
    """
    j = ct.bid(0)
    # From the last rows up: they were read last by the first launch, and are still in the L2 cache.
    first = (ct.num_blocks(1) - 1 - ct.bid(1)) * ROWS
    tiles = ()
    for r in ct.static_iter(range(ROWS)):
        row = min(first + r, x.shape[0] - 1)
        tiles += (ct.load(x, (row, j), (1, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32),)
    mean = ct.load(statistics, (0, j), (1, TILE), padding_mode=ZERO, allow_tma=False)
    scale = ct.load(statistics, (1, j), (1, TILE), padding_mode=ZERO, allow_tma=False)
    scale *= ct.load(gamma, (0, j), (1, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
    shift = ct.load(beta, (0, j), (1, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
    for r in ct.static_iter(range(ROWS)):
        row = min(first + r, x.shape[0] - 1)
        ct.store(y, (row, j), ((tiles[r] - mean) * scale + shift).astype(y.dtype), allow_tma=False)


def run(
    x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, N: int, C: int, eps: float,
    *, ROWS: int, TILE: int, PER_SM: int, WARPS: int, APPLY_ROWS: int,
) -> torch.Tensor:  # fmt: skip
    """Return the batch normalization of x [N, C] with gamma [C] and beta [C]; y [N, C] in x's dtype."""
    stream = torch.cuda.current_stream()
    y = torch.empty_like(x)
    tiles = ct.cdiv(C, TILE)
    parts = max(1, min(ct.cdiv(N, ROWS), PER_SM * multiprocessors(x.device) // tiles))
    partials = torch.empty((2, parts, C), dtype=torch.float32, device=x.device)
    statistics = torch.empty((2, C), dtype=torch.float32, device=x.device)
    ct.launch(stream, (tiles, parts), hinted(partial_kernel, WARPS), (x, partials, ROWS, TILE))
    ct.launch(
        stream, (ct.cdiv(C, STATISTICS_CHANNELS),), statistics_kernel,
        (x, partials, statistics, eps, STATISTICS_PARTS, STATISTICS_CHANNELS),
    )  # fmt: skip
    ct.launch(
        stream, (ct.cdiv(C, APPLY_CHANNELS), ct.cdiv(N, APPLY_ROWS)), apply_kernel,
        (x, gamma.view(1, C), beta.view(1, C), statistics, y, APPLY_ROWS, APPLY_CHANNELS),
    )  # fmt: skip
    return y


def default(case: Case) -> Config:
    # Partial sums: 512 bytes of a row per tile, 8 KB in all, four 16-byte loads for each of 128 threads.
    return {"ROWS": 16, "TILE": 512 // case.dtype_size, "PER_SM": 4, "WARPS": 4, "APPLY_ROWS": 8}


def space(case: Case) -> list[Config]:
    return [
        {**default(case), "ROWS": rows, "PER_SM": per_sm, "WARPS": warps, "APPLY_ROWS": apply_rows}
        for rows in (8, 16)
        for per_sm in (2, 4)
        for warps in (4, 8)
        for apply_rows in (8, 16)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
