"""Rectified linear unit in cuTile: one block computes one tile."""

import cuda.tile as ct
import torch
from tilebench_core import Kernel

from tilebench_operators._elementwise import cutile_default, cutile_space


def relu(x, y, i, TILE, CHECK):
    """Compute tile i of y. CHECK is constant: whether the tile may reach beyond n."""
    t = ct.load(x, (i,), (TILE,), check_bounds=CHECK)
    # NaN is not below zero, so it passes through; ct.maximum would turn it into 0.
    ct.store(y, (i,), ct.where(t < 0, 0, t), check_bounds=CHECK)


@ct.kernel
def relu_kernel(x, y, TILE: ct.Constant[int]):
    """x and y are [n]. Only the last tile may reach beyond n: what is loaded there is never stored.

    A load with a check becomes a branch, into which the compiler moves the arithmetic on what was loaded: the next load then
    waits for it. So the tiles inside are loaded without.
    """
    i = ct.bid(0)
    if (i + 1) * TILE <= x.shape[0]:
        relu(x, y, i, TILE, False)
    else:
        relu(x, y, i, TILE, True)


def run(x: torch.Tensor, *, TILE: int) -> torch.Tensor:
    """Return y = max(x, 0); x, y [n] of one dtype."""
    y = torch.empty_like(x)
    grid = (ct.cdiv(x.numel(), TILE),)
    ct.launch(torch.cuda.current_stream(), grid, relu_kernel, (x, y, TILE))
    return y


KERNEL = Kernel(run=run, default=cutile_default, space=cutile_space)
