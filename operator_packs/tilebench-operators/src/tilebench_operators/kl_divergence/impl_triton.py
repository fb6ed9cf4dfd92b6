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
    # Few rows get more warps each, so that the resident programs of 132 SMs still fill them; a thread loads 16 bytes
    # twice from each input.
    warps = 16 if case["rows"] <= 512 else 8 if case["rows"] <= 1024 else 4
    warps = max(1, min(warps, case["cols"] // 256))
    return {"BLOCK": 256 * triton.next_power_of_2(warps), "STAGES": 1, "num_warps": triton.next_power_of_2(warps)}


def space(case: Case) -> list[Config]:
    return [
        {"BLOCK": block, "STAGES": stages, "num_warps": warps}
        for block in (512, 1024, 2048, 4096)
        for warps in (2, 4, 8, 16)
        for stages in (1, 3)
        if block <= max(case["cols"], 512) and 4 <= block // (32 * warps) <= 32
    ]


KERNEL = Kernel(run=run, default=default, space=space)
