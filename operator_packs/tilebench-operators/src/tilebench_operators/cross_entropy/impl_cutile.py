"""Cross entropy in cuTile: one block takes several rows; the logits are read once, in one chunk where they fit.

The target's logit is picked from the chunk on chip: a load of its own would wait for the target's first.
"""

import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tile_rows import hinted

LOG2_E = math.log2(math.e)  # exp(x) = 2^(x·log2 e), and the GPU has an instruction for 2^x
NEG_INF, ZERO = ct.PaddingMode.NEG_INF, ct.PaddingMode.ZERO


def exp(x):
    """e^x; results below 2^-126, which are nothing beside a row's sum of at least 1, become 0."""
    return ct.exp2(x * LOG2_E, flush_to_zero=True)


@ct.kernel
def cross_entropy_kernel(logits, targets, loss, ROWS: ct.Constant[int], TILE: ct.Constant[int]):
    """One block, ROWS rows in chunks of TILE: logits are [B, C], targets [B, 1] int64, loss [B, 1].

    Beyond a row's end is -inf, whose exp is 0. Rows beyond B are all -inf and become NaN, which is not stored.
    """
    i = ct.bid(0)
    target = ct.load(targets, (i, 0), (ROWS, 1), padding_mode=ZERO, allow_tma=False).astype(ct.int32)
    maximum = ct.full((ROWS, 1), -math.inf, ct.float32)
    total = ct.zeros((ROWS, 1), ct.float32)
    picked = ct.zeros((ROWS, 1), ct.float32)
    for chunk in range(ct.cdiv(logits.shape[1], TILE)):
        z = ct.load(logits, (i, chunk), (ROWS, TILE), padding_mode=NEG_INF, allow_tma=False).astype(ct.float32)
        columns = chunk * TILE + ct.arange(TILE, dtype=ct.int32)[None, :]
        larger = ct.maximum(maximum, ct.max(z, 1, keepdims=True))
        total = total * exp(maximum - larger) + ct.sum(exp(z - larger), 1, keepdims=True)
        picked += ct.sum(ct.where(columns == target, z, 0.0), 1, keepdims=True)
        maximum = larger
    ct.store(loss, (i, 0), (maximum + ct.log(total) - picked).astype(loss.dtype), allow_tma=False)


def run(logits: torch.Tensor, targets: torch.Tensor, *, ROWS: int, TILE: int, WARPS: int) -> torch.Tensor:
    """Return the cross entropy [B] of logits [B, C] with targets [B] int64, in the logits' dtype."""
    B = targets.numel()
    loss = torch.empty(B, dtype=logits.dtype, device=logits.device)
    arguments = (logits, targets.view(B, 1), loss.view(B, 1), ROWS, TILE)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(B, ROWS),), hinted(cross_entropy_kernel, WARPS), arguments)
    return loss


def _tile(case: Case) -> int:
    return min(1024, max(128, 1 << (case["C"] - 1).bit_length()))


def default(case: Case) -> Config:
    # One row for each of four warps: then the reductions stay inside warps. With many rows a warp takes two, for more
    # bytes in flight and fewer blocks to launch.
    return {"ROWS": 4 if case["B"] <= 4096 else 8, "TILE": _tile(case), "WARPS": 4}


def space(case: Case) -> list[Config]:
    tile = _tile(case)
    return [
        {"ROWS": rows, "TILE": tile, "WARPS": warps}
        for rows in (1, 2, 4, 8, 16)
        for warps in (4, 8)
        if 4 <= rows * tile // (32 * warps) <= 64
    ]


KERNEL = Kernel(run=run, default=default, space=space)
