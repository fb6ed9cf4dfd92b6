"""Dropout with a given mask in cuTile: one block computes one tile."""

import cuda.tile as ct
import torch
from tilebench_core import Kernel

from tilebench_operators._elementwise import cutile_default, cutile_space


def dropout(x, keep, y, scale, i, TILE, CHECK):
    """Compute tile i of y. CHECK is constant: whether the tile may reach beyond n."""
    t = ct.load(x, (i,), (TILE,), check_bounds=CHECK).astype(ct.float32)
    kept = ct.load(keep, (i,), (TILE,), check_bounds=CHECK) != 0
    ct.store(y, (i,), ct.where(kept, t * scale, 0.0).astype(y.dtype), check_bounds=CHECK)


@ct.kernel
def dropout_kernel(x, keep, y, scale, TILE: ct.Constant[int]):
    """x, keep and y are [n]. Only the last tile may reach beyond n: what is loaded there is never stored.

    A load with a check becomes a branch, into which the compiler moves the arithmetic on what was loaded: the next load then
    waits for it. So the tiles inside are loaded without.
    """
    i = ct.bid(0)
    if (i + 1) * TILE <= x.shape[0]:
        dropout(x, keep, y, scale, i, TILE, False)
    else:
        dropout(x, keep, y, scale, i, TILE, True)


def run(x: torch.Tensor, keep: torch.Tensor, p: float, *, TILE: int) -> torch.Tensor:
    """Return y = x / (1 - p) where keep ≠ 0, else 0; x, keep, y [n] of one dtype."""
    y = torch.empty_like(x)
    grid = (ct.cdiv(x.numel(), TILE),)
    ct.launch(torch.cuda.current_stream(), grid, dropout_kernel, (x, keep, y, 1.0 / (1.0 - p), TILE))
    return y


KERNEL = Kernel(run=run, default=cutile_default, space=cutile_space)
