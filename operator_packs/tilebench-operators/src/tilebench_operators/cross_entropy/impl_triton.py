"""Cross entropy in Triton: one program takes several rows; the logits are read once, in one chunk where they fit.

A chunk has three axes, [rows, pieces of a row, WIDTH]: WIDTH is what the lanes of one warp load with 16 bytes each.
Triton hands warps to the last axis, which one warp fills, and then to the first, so each row stays in one warp: its
pieces meet in registers and its lanes by shuffles, without a barrier. The target's logit is loaded by itself: searching
for it among the others would cost as many instructions as adding them up.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def load_chunk(logits_ptr, rows, first, B, C, PIECES: tl.constexpr, WIDTH: tl.constexpr):
    """logits·log2 e [ROWS, PIECES, WIDTH] from column `first` on, as fp32."""
    columns = first + tl.arange(0, PIECES)[None, :, None] * WIDTH + tl.arange(0, WIDTH)[None, None, :]
    # Rows beyond B read zeros rather than -inf, whose differences would be NaN.
    other = tl.where(columns < C, 0.0, float("-inf"))
    mask = (rows[:, None, None] < B) & (columns < C)
    z = tl.load(logits_ptr + rows.to(tl.int64)[:, None, None] * C + columns, mask=mask, other=other)
    return z.to(tl.float32) * LOG2_E


@triton.jit
def accumulate(z, maximum, total):
    """Take z [ROWS, PIECES, WIDTH] into the running maximum [ROWS] and the running sum [ROWS] of 2^(z - maximum)."""
    larger = tl.maximum(maximum, tl.max(tl.max(z, axis=1), axis=1))
    powers = tl.exp2(z - larger[:, None, None])
    return larger, total * tl.exp2(maximum - larger) + tl.sum(tl.sum(powers, axis=1), axis=1)


@triton.jit
def cross_entropy_kernel(
    logits_ptr, targets_ptr, loss_ptr, B, C, ROWS: tl.constexpr, PIECES: tl.constexpr, WIDTH: tl.constexpr
):
    """One program, ROWS rows: logits point to [B, C], targets to [B] int64, loss to [B]."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    z = load_chunk(logits_ptr, rows, 0, B, C, PIECES, WIDTH)
    target = tl.load(targets_ptr + rows, mask=rows < B, other=0)
    # No target is negative, but the compiler does not know, and loads the targets together with the chunk: by itself it
    # would load them behind the exchange of the maximum.
    z = tl.where(target[:, None, None] >= 0, z, 0.0)
    picked = tl.load(logits_ptr + rows.to(tl.int64) * C + target, mask=rows < B, other=0.0).to(tl.float32)
    maximum, total = tl.full([ROWS], float("-inf"), tl.float32), tl.zeros([ROWS], tl.float32)
    maximum, total = accumulate(z, maximum, total)
    for first in range(PIECES * WIDTH, C, PIECES * WIDTH):
        z = load_chunk(logits_ptr, rows, first, B, C, PIECES, WIDTH)
        maximum, total = accumulate(z, maximum, total)
    loss = (maximum + tl.log2(total)) / LOG2_E - picked
    tl.store(loss_ptr + rows, loss.to(loss_ptr.dtype.element_ty), mask=rows < B)


def run(logits: torch.Tensor, targets: torch.Tensor, *, ROWS: int, PIECES: int, num_warps: int) -> torch.Tensor:
    """Return the cross entropy [B] of logits [B, C] with targets [B] int64, in the logits' dtype."""
    B, C = logits.shape
    loss = torch.empty(B, dtype=logits.dtype, device=logits.device)
    WIDTH = 32 * 16 // logits.element_size()
    cross_entropy_kernel[(triton.cdiv(B, ROWS),)](
        logits, targets, loss, B, C, ROWS=ROWS, PIECES=PIECES, WIDTH=WIDTH, num_warps=num_warps
    )
    return loss


def _pieces(case: Case) -> int:
    """Accesses per lane that hold a row, or 16 bytes times eight of a long one."""
    return min(8, triton.next_power_of_2(triton.cdiv(case["C"] * case.dtype_size, 32 * 16)))


def default(case: Case) -> Config:
    # One row for each warp, which leaves room for as many warps as a multiprocessor can have.
    warps = 2 if case["B"] <= 4096 else 4
    return {"ROWS": warps, "PIECES": _pieces(case), "num_warps": warps}


def space(case: Case) -> list[Config]:
    return [
        {"ROWS": per_warp * warps, "PIECES": _pieces(case), "num_warps": warps}
        for per_warp in (1, 2, 4)
        for warps in (1, 2, 4, 8)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
