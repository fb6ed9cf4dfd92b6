"""Rectified linear unit in cuTile: one block computes one tile."""

import cuda.tile as ct
import torch
from tilebench_core import Kernel

from tilebench_operators._elementwise import cutile_default, cutile_space


@ct.kernel
def relu_kernel(x, y, TILE: ct.Constant[int]):
    """x and y are [n]. The last tile may reach beyond n: what is loaded there is never stored."""
    i = ct.bid(0)
    t = ct.load(x, (i,), (TILE,))
    # NaN is not below zero, so it passes through; ct.maximum would turn it into 0.
    ct.store(y, (i,), ct.where(t < 0, 0, t))


def run(x: torch.Tensor, *, TILE: int) -> torch.Tensor:
    """Return y = max(x, 0); x, y [n] of one dtype."""
    y = torch.empty_like(x)
    grid = (ct.cdiv(x.numel(), TILE),)
    ct.launch(torch.cuda.current_stream(), grid, relu_kernel, (x, y, TILE))
    return y


KERNEL = Kernel(run=run, default=cutile_default, space=cutile_space)
