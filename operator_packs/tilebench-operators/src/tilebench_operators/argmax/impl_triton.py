"""Index of the maximum over the last axis in Triton: one program keeps the best value and its column per lane.

A lane meets its columns in ascending order and changes its mind for strictly larger values only, so it holds its
lowest best column; among lanes with the same best value the lowest column wins. Columns are int32 all along.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def argmax_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """One program, one row: x points to [rows, cols], y to [rows] int64."""
    row = tl.program_id(0)
    start = row.to(tl.int64) * cols
    lanes = tl.arange(0, BLOCK)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    best_columns = lanes  # right for a row of -inf, too
    for first in tl.range(0, cols, BLOCK, num_stages=STAGES):
        columns = first + lanes
        mask = columns < cols
        x = tl.load(x_ptr + start + columns, mask=mask, other=float("-inf"), eviction_policy="evict_first")
        x = x.to(tl.float32)
        larger = x > best
        best = tl.where(larger, x, best)
        best_columns = tl.where(larger, columns, best_columns)
    candidates = tl.where(best == tl.max(best, axis=0), best_columns, 2147483647)
    tl.store(y_ptr + row, tl.min(candidates, axis=0).to(tl.int64))


def run(x: torch.Tensor, dim: int, *, BLOCK: int, STAGES: int, num_warps: int) -> torch.Tensor:
    """Return the index of the maximum of x [M, N] over its last axis (`dim` is 1), the lowest on ties, [M] int64."""
    rows, cols = x.shape
    y = torch.empty(rows, dtype=torch.int64, device=x.device)
    argmax_kernel[(rows,)](x, y, cols, BLOCK=BLOCK, STAGES=STAGES, num_warps=num_warps)
    return y


def default(case: Case) -> Config:
    # Best values and columns take two registers per element, so a thread has 16 elements at most. Three stages of
    # shared memory were slower on an H200 in both dtypes.
    return {"BLOCK": 1024 if case["N"] <= 1024 else 2048, "STAGES": 1, "num_warps": 4}


def space(case: Case) -> list[Config]:
    return [
        {"BLOCK": block, "STAGES": stages, "num_warps": warps}
        for block in (1024, 2048, 4096, 8192)
        for warps in (2, 4, 8)
        for stages in (1, 3)
        if block <= 2 * max(case["N"], 512) and 8 <= block // (32 * warps) <= 32
    ]


KERNEL = Kernel(run=run, default=default, space=space)
