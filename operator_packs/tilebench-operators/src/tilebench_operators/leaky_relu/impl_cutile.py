"""Leaky rectified linear unit in cuTile: one block computes one tile."""

import cuda.tile as ct
import torch
from tilebench_core import Kernel

from tilebench_operators._elementwise import cutile_default, cutile_space


def leaky_relu(x, y, i, TILE, CHECK):
    """Compute tile i of y. CHECK is constant: whether the tile may reach beyond n."""
    t = ct.load(x, (i,), (TILE,), check_bounds=CHECK).astype(ct.float32)
    ct.store(y, (i,), ct.where(t > 0.0, t, 0.01 * t).astype(y.dtype), check_bounds=CHECK)


@ct.kernel
def leaky_relu_kernel(x, y, TILE: ct.Constant[int]):
    """x and y are [n]. Only the last tile may reach beyond n: what is loaded there is never stored.

    A load with a check becomes a branch, into which the compiler moves the arithmetic on what was loaded: the next load then
    waits for it. So the tiles inside are loaded without.
    """
    i = ct.bid(0)
    if (i + 1) * TILE <= x.shape[0]:
        leaky_relu(x, y, i, TILE, False)
    else:
        leaky_relu(x, y, i, TILE, True)


def run(x: torch.Tensor, n: int, *, TILE: int) -> torch.Tensor:
    """Return y = x where x > 0, else 0.01·x; x, y [n] of one dtype."""
    y = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(n, TILE),), leaky_relu_kernel, (x, y, TILE))
    return y


KERNEL = Kernel(run=run, default=cutile_default, space=cutile_space)
