"""Kullback-Leibler divergence in Triton: one program adds up one row, lane by lane, and reduces its lanes once."""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def divergence_kernel(log_predicted_ptr, true_ptr, loss_ptr, cols, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """One program, one row: both inputs point to [rows, cols] fp32, loss to [rows] fp32."""
    row = tl.program_id(0)
    start = row.to(tl.int64) * cols
    lanes = tl.arange(0, BLOCK)
    sums = tl.zeros([BLOCK], tl.float32)
    for first in tl.range(0, cols, BLOCK, num_stages=STAGES):
        columns = first + lanes
        mask = columns < cols
        t = tl.load(true_ptr + start + columns, mask=mask, other=0.0, eviction_policy="evict_first")
        predicted = tl.load(log_predicted_ptr + start + columns, mask=mask, other=0.0, eviction_policy="evict_first")
        # Where t is 0 the logarithm is taken of 1 instead, and 0·(0 - predicted) adds nothing.
        sums += t * (tl.log(tl.where(t > 0.0, t, 1.0)) - predicted)
    tl.store(loss_ptr + row, tl.sum(sums, axis=0))


def run(log_predicted: torch.Tensor, true: torch.Tensor, *, BLOCK: int, STAGES: int, num_warps: int) -> torch.Tensor:
    """Return Σ true·(ln true - log_predicted) over the last axis of two [rows, cols], [rows] fp32; 0·ln 0 is 0."""
    rows, cols = true.shape
    loss = torch.empty(rows, dtype=torch.float32, device=true.device)
    divergence_kernel[(rows,)](log_predicted, true, loss, cols, BLOCK=BLOCK, STAGES=STAGES, num_warps=num_warps)
    return loss


def default(case: Case) -> Config:
    # Up to 2112 rows are all resident on 132 SMs, in about 32 warps on each: a second round of few programs would leave
    # most of the GPU idle. A thread then loads 16 bytes up to four times from each input before it adds. More rows take
    # several rounds anyway.
    rows, cols = case["rows"], case["cols"]
    warps, per_thread = (8, 16) if rows <= 528 else (4, 16) if rows <= 1056 else (2, 16) if rows <= 2112 else (4, 8)
    while warps > 1 and 128 * warps > cols:
        warps //= 2
    return {
        "BLOCK": 32 * warps * min(per_thread, max(4, triton.next_power_of_2(cols) // (32 * warps))),
        "STAGES": 1,
        "num_warps": warps,
    }


def space(case: Case) -> list[Config]:
    return [
        {"BLOCK": block, "STAGES": stages, "num_warps": warps}
        for block in (512, 1024, 2048, 4096)
        for warps in (2, 4, 8, 16)
        for stages in (1, 3)
        if block <= max(case["cols"], 512) and 4 <= block // (32 * warps) <= 32
    ]


KERNEL = Kernel(run=run, default=default, space=space)
