"""Batch normalization in cuTile, three launches: partial sums of row groups, statistics per channel, application.

Sums are two-level and free of atomics, so results repeat bit by bit. They are taken of x[n, c] - x[0, c]: a large mean
or a tiny variance then cancels no digits in the difference of the mean square and the squared mean.

x [N, C] is passed as [steps, ROWS, C], and the rows of a step are tiles of their own: a thread keeps its channels, so
sums need no exchange, and all loads of a step are under way before the first is used. Where tiles fit into C they have
no bounds check; a checked load of 16-bit elements is a branch, and every load waits for the one before it. No load uses
TMA: its blocks would take all registers of an SM.

A launch may start while the one before it still runs (programmatic dependent launch). Blocks of the last have loaded their
rows of x when the statistics are ready. The second starts early only where the first leaves it room: otherwise its blocks
would crowd on the multiprocessors that finish first.
"""

import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors

from tilebench_operators._cutile_dependent import launch_dependent
from tilebench_operators._cutile_rows import load, store
from tilebench_operators._tile_rows import hinted

STATISTICS_CHANNELS = 8  # 32 bytes, one sector, of each partial row; so 1024 channels make 128 blocks
STATISTICS_PARTS = 128  # with 8 channels four values for each of 256 threads
STATISTICS_WARPS = 8
APPLY_CHANNELS = 512  # four for each of 128 threads, the widest load of fp32 statistics: x is laid out like them
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def partial_kernel(x, partials, ROWS: ct.Constant[int], TILE: ct.Constant[int], INSIDE: ct.Constant[bool]):
    """One block, one group of steps of TILE channels: x is [steps, ROWS, C], partials [2, parts, C] fp32.

    The group is every parts-th step, so that all blocks together walk down x side by side. INSIDE: TILE divides C.
    """
    ct.grid_dependency_control_launch_dependents()
    j, part, parts = ct.bid(0), ct.bid(1), ct.num_blocks(1)
    shape = (1, 1, TILE)
    pivot = load(x, (0, 0, j), shape, INSIDE, ZERO).astype(ct.float32)
    sums = ct.zeros(shape, ct.float32)
    squares = ct.zeros(shape, ct.float32)
    for step in range(part, x.shape[0], parts):
        tiles = ()
        for row in ct.static_iter(range(ROWS)):
            tiles += (load(x, (step, row, j), shape, INSIDE, ZERO),)
        for row in ct.static_iter(range(ROWS)):
            shifted = tiles[row].astype(ct.float32) - pivot
            sums += shifted
            squares += shifted * shifted
    store(partials, (0, part, j), sums, INSIDE)
    store(partials, (1, part, j), squares, INSIDE)


@ct.kernel
def statistics_kernel(
    x, partials, statistics, inverse_n: float, eps: float,
    PARTS: ct.Constant[int], TILE: ct.Constant[int], FULL: ct.Constant[int], CHUNKS: ct.Constant[int],
):  # fmt: skip
    """One block, TILE channels: adds the partials [2, parts, C]; statistics [2, 1, C] are mean and 1/deviation.

    The partials are read in CHUNKS chunks of PARTS parts, FULL of which lie inside.
    """
    ct.grid_dependency_control_launch_dependents()
    j = ct.bid(0)
    pivot = load(x, (0, 0, j), (1, 1, TILE), FULL > 0, ZERO)
    ct.grid_dependency_control_wait()
    loaded = ()
    for i in ct.static_iter(range(CHUNKS)):
        sums = load(partials, (0, i, j), (1, PARTS, TILE), i < FULL, ZERO)
        squares = load(partials, (1, i, j), (1, PARTS, TILE), i < FULL, ZERO)
        loaded += ((sums, squares),)
    sums = ct.zeros((1, PARTS, TILE), ct.float32)
    squares = ct.zeros((1, PARTS, TILE), ct.float32)
    for i in ct.static_iter(range(CHUNKS)):
        sums += loaded[i][0]
        squares += loaded[i][1]
    shift = ct.sum(sums, 1, keepdims=True) * inverse_n
    variance = ct.maximum(ct.sum(squares, 1, keepdims=True) * inverse_n - shift * shift, 0.0)
    store(statistics, (0, 0, j), pivot.astype(ct.float32) + shift, FULL > 0)
    store(statistics, (1, 0, j), ct.rsqrt(variance + eps), FULL > 0)


@ct.kernel
def apply_kernel(
    x, gamma, beta, statistics, y, ROWS: ct.Constant[int], TILE: ct.Constant[int], INSIDE: ct.Constant[bool]
):  # fmt: skip
    """One block, one step of TILE channels: x and y are [steps, ROWS, C], gamma and beta [1, 1, C].

    statistics are [2, 1, C]. INSIDE: TILE divides C.
    """
    j = ct.bid(0)
    # From the last rows up: they were read last by the first launch, and are still in the L2 cache.
    step = ct.num_blocks(1) - 1 - ct.bid(1)
    shape = (1, 1, TILE)
    tiles = ()
    for row in ct.static_iter(range(ROWS)):
        tiles += (load(x, (step, row, j), shape, INSIDE, ZERO),)
    weight = load(gamma, (0, 0, j), shape, INSIDE, ZERO).astype(ct.float32)
    shift = load(beta, (0, 0, j), shape, INSIDE, ZERO).astype(ct.float32)
    ct.grid_dependency_control_wait()
    mean = load(statistics, (0, 0, j), shape, INSIDE, ZERO)
    scale = load(statistics, (1, 0, j), shape, INSIDE, ZERO) * weight
    for row in ct.static_iter(range(ROWS)):
        result = (tiles[row].astype(ct.float32) - mean) * scale + shift
        store(y, (step, row, j), result.astype(y.dtype), INSIDE)


def run(
    x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, N: int, C: int, eps: float,
    *, ROWS: int, TILE: int, PER_SM: int, WARPS: int, APPLY_ROWS: int,
) -> torch.Tensor:  # fmt: skip
    """Return the batch normalization of x [N, C] with gamma [C] and beta [C]; y [N, C] in x's dtype.

    A step has as many rows as the configuration says, or the largest of its divisors that divides N.
    """
    stream = torch.cuda.current_stream()
    y = torch.empty_like(x)
    rows, apply_rows = math.gcd(N, ROWS), math.gcd(N, APPLY_ROWS)
    tiles, steps = ct.cdiv(C, TILE), N // rows
    sms = multiprocessors(x.device)
    parts = max(1, min(steps, PER_SM * sms // tiles))
    partials = torch.empty((2, parts, C), dtype=torch.float32, device=x.device)
    statistics = torch.empty((2, 1, C), dtype=torch.float32, device=x.device)

    x_steps = x.view(steps, rows, C)
    ct.launch(
        stream, (tiles, parts), hinted(partial_kernel, WARPS, PER_SM * WARPS),
        (x_steps, partials, rows, TILE, C % TILE == 0),
    )  # fmt: skip
    full = parts // STATISTICS_PARTS if C % STATISTICS_CHANNELS == 0 else 0
    chunks = ct.cdiv(parts, STATISTICS_PARTS)
    launch = launch_dependent if tiles * parts <= (PER_SM - 1) * sms else ct.launch
    launch(
        stream, (ct.cdiv(C, STATISTICS_CHANNELS),), hinted(statistics_kernel, STATISTICS_WARPS),
        (x_steps, partials, statistics, 1.0 / N, eps, STATISTICS_PARTS, STATISTICS_CHANNELS, full, chunks),
    )  # fmt: skip
    apply_steps = (N // apply_rows, apply_rows, C)
    launch_dependent(
        stream, (ct.cdiv(C, APPLY_CHANNELS), N // apply_rows), hinted(apply_kernel, 4),
        (
            x.view(apply_steps), gamma.view(1, 1, C), beta.view(1, 1, C), statistics, y.view(apply_steps),
            apply_rows, APPLY_CHANNELS, C % APPLY_CHANNELS == 0,
        ),
    )  # fmt: skip
    return y


def default(case: Case) -> Config:
    # Partial sums: a 16-byte load for each row of a step and each of 128 threads. All blocks are resident at once: the
    # compiler, which loads a step ahead for 16-bit x, gets as many registers as that leaves.
    return {"ROWS": 8, "TILE": 2048 // case.dtype_size, "PER_SM": 2 * case.dtype_size, "WARPS": 4, "APPLY_ROWS": 8}


def space(case: Case) -> list[Config]:
    return [
        {
            "ROWS": rows,
            "TILE": 512 * warps // case.dtype_size,
            "PER_SM": per_sm,
            "WARPS": warps,
            "APPLY_ROWS": apply_rows,
        }
        for rows in (4, 8)
        for per_sm in (2, 4, 8)
        for warps in (4, 8)
        for apply_rows in (4, 8)
        if 512 * warps // case.dtype_size <= 1024 and per_sm * warps <= 8 * case.dtype_size  # registers for the loads
    ]


KERNEL = Kernel(run=run, default=default, space=space)
