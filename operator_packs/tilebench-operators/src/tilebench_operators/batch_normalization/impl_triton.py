"""Batch normalization in Triton, three launches: partial sums of row groups, statistics per channel, application.

Sums are two-level and free of atomics, so results repeat bit by bit. They are taken of x[n, c] - x[0, c]: a large mean
or a tiny variance then cancels no digits in the difference of the mean square and the squared mean.

Each launch starts while the one before it still runs. As many programs of the last as then find room load their rows of x
together with the first launch, and keep them in registers until the statistics are ready.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel, multiprocessors

from tilebench_operators._triton_dependent import dependent, start_next, wait_for_previous

STATISTICS_CHANNELS = 16  # 64 bytes of each partial row; narrow, so that 1024 channels make 64 programs
STATISTICS_PARTS = 64


@triton.jit
def partial_kernel(x_ptr, partials_ptr, N, C, ROWS: tl.constexpr, BLOCK_C: tl.constexpr, STAGES: tl.constexpr):
    """One program, one group of rows of BLOCK_C channels: x points to [N, C], partials to [2, parts, C] fp32.

    The group is every parts-th block of ROWS rows, so that all programs together walk down x side by side.
    """
    start_next()
    part, parts = tl.program_id(1), tl.num_programs(1)
    channels = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)[None, :]
    pivot = tl.load(x_ptr + channels, mask=channels < C, other=0.0).to(tl.float32)
    sums = tl.zeros([ROWS, BLOCK_C], tl.float32)
    squares = tl.zeros([ROWS, BLOCK_C], tl.float32)
    for start in tl.range(part * ROWS, N, parts * ROWS, num_stages=STAGES):
        rows = start + tl.arange(0, ROWS)[:, None]
        x = tl.load(x_ptr + rows.to(tl.int64) * C + channels, mask=(rows < N) & (channels < C), other=0.0)
        shifted = tl.where(rows < N, x.to(tl.float32) - pivot, 0.0)
        sums += shifted
        squares += shifted * shifted
    out = partials_ptr + part * C + channels
    tl.store(out, tl.sum(sums, axis=0, keep_dims=True), mask=channels < C)
    tl.store(out + parts * C, tl.sum(squares, axis=0, keep_dims=True), mask=channels < C)


@triton.jit
def statistics_kernel(
    x_ptr, partials_ptr, statistics_ptr, N, C, parts, eps, PARTS: tl.constexpr, BLOCK_C: tl.constexpr
):
    """One program, BLOCK_C channels: adds the partials [2, parts, C]; statistics [2, C] are mean and 1/deviation."""
    start_next()
    channels = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = channels < C
    pivot = tl.load(x_ptr + channels, mask=inside, other=0.0).to(tl.float32)
    wait_for_previous()
    sums = tl.zeros([PARTS, BLOCK_C], tl.float32)
    squares = tl.zeros([PARTS, BLOCK_C], tl.float32)
    for start in range(0, parts, PARTS):
        part = start + tl.arange(0, PARTS)[:, None]
        source = partials_ptr + part * C + channels[None, :]
        mask = (part < parts) & (channels[None, :] < C)
        sums += tl.load(source, mask=mask, other=0.0)
        squares += tl.load(source + parts * C, mask=mask, other=0.0)
    shift = tl.sum(sums, axis=0) / N
    variance = tl.maximum(tl.sum(squares, axis=0) / N - shift * shift, 0.0)
    tl.store(statistics_ptr + channels, pivot + shift, mask=inside)
    tl.store(statistics_ptr + C + channels, tl.rsqrt(variance + eps), mask=inside)


@triton.jit
def apply_kernel(
    x_ptr, gamma_ptr, beta_ptr, statistics_ptr, y_ptr, N, C, early, ROWS: tl.constexpr, BLOCK_C: tl.constexpr
):  # fmt: skip
    """One program, ROWS rows of BLOCK_C channels: x and y point to [N, C], gamma and beta to [C].

    About `early` blocks of rows are loaded while the first launch runs.
    """
    channels = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)[None, :]
    # The early ones from the first row down, as the first launch does. The others from the last row up: these were read
    # last by the first launch, and are still in the L2 cache.
    block = tl.program_id(1)
    if block >= early:
        block = tl.num_programs(1) - 1 - (block - early)
    rows = block * ROWS + tl.arange(0, ROWS)[:, None]
    offsets = rows.to(tl.int64) * C + channels
    inside = channels < C
    mask = (rows < N) & inside
    if tl.program_id(1) < early:
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    else:  # nobody else needs it again
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first")
    gamma = tl.load(gamma_ptr + channels, mask=inside, other=0.0).to(tl.float32)
    beta = tl.load(beta_ptr + channels, mask=inside, other=0.0).to(tl.float32)
    wait_for_previous()
    mean = tl.load(statistics_ptr + channels, mask=inside, other=0.0)
    scale = tl.load(statistics_ptr + C + channels, mask=inside, other=0.0) * gamma
    y = (x.to(tl.float32) - mean) * scale + beta
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


def run(
    x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, N: int, C: int, eps: float,
    *, ROWS: int, BLOCK_C: int, PER_SM: int, STAGES: int, num_warps: int, APPLY_ROWS: int, APPLY_WARPS: int,
) -> torch.Tensor:  # fmt: skip
    """Return the batch normalization of x [N, C] with gamma [C] and beta [C]; y [N, C] in x's dtype."""
    y = torch.empty_like(x)
    tiles = triton.cdiv(C, BLOCK_C)
    parts = max(1, min(triton.cdiv(N, ROWS), PER_SM * multiprocessors(x.device) // tiles))
    partials = torch.empty((2, parts, C), dtype=torch.float32, device=x.device)
    statistics = torch.empty((2, C), dtype=torch.float32, device=x.device)
    partial_kernel[(tiles, parts)](x, partials, N, C, ROWS=ROWS, BLOCK_C=BLOCK_C, STAGES=STAGES, num_warps=num_warps)
    statistics_kernel[(triton.cdiv(C, STATISTICS_CHANNELS),)](
        x, partials, statistics, N, C, parts, eps,
        PARTS=STATISTICS_PARTS, BLOCK_C=STATISTICS_CHANNELS, num_warps=4, **dependent(),
    )  # fmt: skip
    # As many channels as the warps load with one 16-byte access per thread: then every thread stays with its channels
    # and loads their parameters itself, without an exchange between threads.
    width = APPLY_WARPS * 32 * (16 // x.element_size())
    early = 8 // APPLY_WARPS * multiprocessors(x.device) // triton.cdiv(C, width)
    apply_kernel[(triton.cdiv(C, width), triton.cdiv(N, APPLY_ROWS))](
        x, gamma, beta, statistics, y, N, C, early,
        ROWS=APPLY_ROWS, BLOCK_C=width, num_warps=APPLY_WARPS, **dependent(),
    )  # fmt: skip
    return y


def default(case: Case) -> Config:
    # Partial sums: 512 bytes of a row per tile, 8 KB in all, four 16-byte loads for each of 128 threads.
    partial = {"ROWS": 16, "BLOCK_C": 512 // case.dtype_size, "PER_SM": 4, "STAGES": 3, "num_warps": 4}
    return {**partial, "APPLY_ROWS": 8, "APPLY_WARPS": 4}


def space(case: Case) -> list[Config]:
    return [
        {
            **default(case),
            "ROWS": rows,
            "PER_SM": per_sm,
            "STAGES": stages,
            "APPLY_ROWS": apply_rows,
            "APPLY_WARPS": warps,
        }
        for rows in (8, 16)
        for per_sm in (2, 4)
        for stages in (1, 3)
        for apply_rows in (4, 8)
        for warps in (2, 4)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
