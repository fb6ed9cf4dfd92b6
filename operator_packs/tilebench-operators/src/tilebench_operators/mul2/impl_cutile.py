"""Doubling in cuTile: one block doubles one tile."""

import cuda.tile as ct
import torch
from tilebench_core import Kernel

from tilebench_operators._elementwise import cutile_default, cutile_space


@ct.kernel
def mul2_kernel(x, y, TILE: ct.Constant[int]):
    """x and y are [n]. The last tile may reach beyond n: what is loaded there is never stored."""
    i = ct.bid(0)
    t = ct.load(x, (i,), (TILE,))
    ct.store(y, (i,), t + t)  # exact in every dtype


def run(x: torch.Tensor, *, TILE: int) -> torch.Tensor:
    """Return y = 2·x; x, y [n] of one dtype."""
    y = torch.empty_like(x)
    grid = (ct.cdiv(x.numel(), TILE),)
    ct.launch(torch.cuda.current_stream(), grid, mul2_kernel, (x, y, TILE))
    return y


KERNEL = Kernel(run=run, default=cutile_default, space=cutile_space)
