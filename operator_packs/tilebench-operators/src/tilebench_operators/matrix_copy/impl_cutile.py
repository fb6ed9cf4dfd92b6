"""Matrix copy in cuTile: the matrix is contiguous, so it is copied as one long vector, a tile per block."""

import cuda.tile as ct
import torch
from tilebench_core import Kernel

from tilebench_operators._elementwise import cutile_default, cutile_space


@ct.kernel
def copy_kernel(a, b, TILE: ct.Constant[int]):
    """a and b are [n]. The last tile may reach beyond n: what is loaded there is never stored."""
    i = ct.bid(0)
    ct.store(b, (i,), ct.load(a, (i,), (TILE,)))


def run(a: torch.Tensor, *, TILE: int) -> torch.Tensor:
    """Return a copy of a [N, N] in its dtype."""
    b = torch.empty_like(a)
    grid = (ct.cdiv(a.numel(), TILE),)
    ct.launch(torch.cuda.current_stream(), grid, copy_kernel, (a.view(-1), b.view(-1), TILE))
    return b


KERNEL = Kernel(run=run, default=cutile_default, space=cutile_space)
