"""Mean over the last axis in Triton: one program adds up one row, lane by lane, and reduces its lanes once."""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def mean_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """One program, one row: x points to [rows, cols], y to [rows] fp32."""
    row = tl.program_id(0)
    start = row.to(tl.int64) * cols
    lanes = tl.arange(0, BLOCK)
    sums = tl.zeros([BLOCK], tl.float32)
    for first in tl.range(0, cols, BLOCK, num_stages=STAGES):
        columns = first + lanes
        x = tl.load(x_ptr + start + columns, mask=columns < cols, other=0.0, eviction_policy="evict_first")
        sums += x.to(tl.float32)
    tl.store(y_ptr + row, tl.sum(sums, axis=0) / cols)


def run(x: torch.Tensor, dim: int, *, BLOCK: int, STAGES: int, num_warps: int) -> torch.Tensor:
    """Return the mean of x [M, N] over its last axis (`dim` is 1), [M] fp32."""
    rows, cols = x.shape
    y = torch.empty(rows, dtype=torch.float32, device=x.device)
    mean_kernel[(rows,)](x, y, cols, BLOCK=BLOCK, STAGES=STAGES, num_warps=num_warps)
    return y


def default(case: Case) -> Config:
    # 2048 rows are 16 for each of 132 SMs: with 4 warps all are resident at once, and 16 elements per thread keep
    # more than 64 KB in flight on each SM.
    return {"BLOCK": 1024 if case["N"] <= 1024 else 2048, "STAGES": 1, "num_warps": 4}


def space(case: Case) -> list[Config]:
    return [
        {"BLOCK": block, "STAGES": stages, "num_warps": warps}
        for block in (1024, 2048, 4096, 8192)
        for warps in (2, 4, 8)
        for stages in (1, 3)
        if block <= 2 * max(case["N"], 512) and 8 <= block // (32 * warps) <= 64
    ]


KERNEL = Kernel(run=run, default=default, space=space)
