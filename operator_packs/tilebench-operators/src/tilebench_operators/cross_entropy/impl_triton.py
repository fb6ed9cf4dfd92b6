"""Cross entropy in Triton: one program takes several rows; the logits are read once, in one chunk where they fit.

The target's logit is picked from the chunk on chip: a load of its own would wait for the target's first.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def cross_entropy_kernel(logits_ptr, targets_ptr, loss_ptr, B, C, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """One program, ROWS rows: logits point to [B, C], targets to [B] int64, loss to [B]."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    target = tl.load(targets_ptr + rows, mask=rows < B, other=0).to(tl.int32)
    start = rows.to(tl.int64)[:, None] * C
    maximum = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    picked = tl.zeros([ROWS], tl.float32)
    for first in range(0, C, BLOCK):
        columns = first + tl.arange(0, BLOCK)[None, :]
        # Rows beyond B read zeros rather than -inf, whose differences would be NaN.
        other = tl.where(columns < C, 0.0, float("-inf"))
        mask = (rows[:, None] < B) & (columns < C)
        z = tl.load(logits_ptr + start + columns, mask=mask, other=other).to(tl.float32)
        larger = tl.maximum(maximum, tl.max(z, axis=1))
        total = total * tl.exp(maximum - larger) + tl.sum(tl.exp(z - larger[:, None]), axis=1)
        picked += tl.sum(tl.where(columns == target[:, None], z, 0.0), axis=1)
        maximum = larger
    loss = maximum + tl.log(total) - picked
    tl.store(loss_ptr + rows, loss.to(loss_ptr.dtype.element_ty), mask=rows < B)


def run(logits: torch.Tensor, targets: torch.Tensor, *, ROWS: int, BLOCK: int, num_warps: int) -> torch.Tensor:
    """Return the cross entropy [B] of logits [B, C] with targets [B] int64, in the logits' dtype."""
    B, C = logits.shape
    loss = torch.empty(B, dtype=logits.dtype, device=logits.device)
    cross_entropy_kernel[(triton.cdiv(B, ROWS),)](
        logits, targets, loss, B, C, ROWS=ROWS, BLOCK=BLOCK, num_warps=num_warps
    )
    return loss


def default(case: Case) -> Config:
    # One warp per program needs no barrier in its reductions; with many rows it takes two, for more bytes in flight
    # and fewer programs to launch.
    block = min(1024, max(128, triton.next_power_of_2(case["C"])))
    return {"ROWS": 1 if case["B"] <= 4096 else 2, "BLOCK": block, "num_warps": 1}


def space(case: Case) -> list[Config]:
    block = min(1024, max(128, triton.next_power_of_2(case["C"])))
    return [
        {"ROWS": rows, "BLOCK": block, "num_warps": warps}
        for rows in (1, 2, 4, 8, 16)
        for warps in (1, 2, 4, 8)
        if 4 <= rows * block // (32 * warps) <= 64
    ]


KERNEL = Kernel(run=run, default=default, space=space)
