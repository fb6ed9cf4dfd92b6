"""Dropout with a given mask in cuTile: one block computes one tile."""

import cuda.tile as ct
import torch
from tilebench_core import Kernel

from tilebench_operators._elementwise import cutile_default, cutile_space


@ct.kernel
def dropout_kernel(x, keep, y, scale, TILE: ct.Constant[int]):
    """x, keep and y are [n]. The last tile may reach beyond n: what is loaded there is never stored."""
    i = ct.bid(0)
    t = ct.load(x, (i,), (TILE,)).astype(ct.float32)
    kept = ct.load(keep, (i,), (TILE,)) != 0
    ct.store(y, (i,), ct.where(kept, t * scale, 0.0).astype(y.dtype))


def run(x: torch.Tensor, keep: torch.Tensor, p: float, *, TILE: int) -> torch.Tensor:
    """Return y = x / (1 - p) where keep ≠ 0, else 0; x, keep, y [n] of one dtype."""
    y = torch.empty_like(x)
    grid = (ct.cdiv(x.numel(), TILE),)
    ct.launch(torch.cuda.current_stream(), grid, dropout_kernel, (x, keep, y, 1.0 / (1.0 - p), TILE))
    return y


KERNEL = Kernel(run=run, default=cutile_default, space=cutile_space)
