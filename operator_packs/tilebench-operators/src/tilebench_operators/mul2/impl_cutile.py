"""Doubling in cuTile: one block doubles one tile."""

import cuda.tile as ct
import torch
from tilebench_core import Kernel

from tilebench_operators._elementwise import cutile_default, cutile_space


def double(x, y, i, TILE, CHECK):
    """Double tile i. CHECK is constant: whether the tile may reach beyond n."""
    t = ct.load(x, (i,), (TILE,), check_bounds=CHECK)
    ct.store(y, (i,), t + t, check_bounds=CHECK)  # exact in every dtype


@ct.kernel
def mul2_kernel(x, y, TILE: ct.Constant[int]):
    """x and y are [n]. Only the last tile may reach beyond n: what is loaded there is never stored.

    A load with a check becomes a branch, into which the compiler moves the arithmetic on what was loaded: the next load then
    waits for it. So the tiles inside are loaded without.
    """
    i = ct.bid(0)
    if (i + 1) * TILE <= x.shape[0]:
        double(x, y, i, TILE, False)
    else:
        double(x, y, i, TILE, True)


def run(x: torch.Tensor, *, TILE: int) -> torch.Tensor:
    """Return y = 2·x; x, y [n] of one dtype."""
    y = torch.empty_like(x)
    grid = (ct.cdiv(x.numel(), TILE),)
    ct.launch(torch.cuda.current_stream(), grid, mul2_kernel, (x, y, TILE))
    return y


KERNEL = Kernel(run=run, default=cutile_default, space=cutile_space)
