"""Narrowing to fp16 in cuTile: one block casts one tile."""

import cuda.tile as ct
import torch
from tilebench_core import Kernel

from tilebench_operators._elementwise import cutile_default, cutile_space


@ct.kernel
def cast_kernel(x, y, TILE: ct.Constant[int]):
    """x and y are [n]. The last tile may reach beyond n: what is loaded there is never stored."""
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (TILE,)).astype(ct.float16))  # to the nearest, ties to even


def run(x: torch.Tensor, *, TILE: int) -> torch.Tensor:
    """Return y [n], fp16, for x [n], fp32."""
    y = torch.empty_like(x, dtype=torch.float16)
    grid = (ct.cdiv(x.numel(), TILE),)
    ct.launch(torch.cuda.current_stream(), grid, cast_kernel, (x, y, TILE))
    return y


KERNEL = Kernel(run=run, default=cutile_default, space=cutile_space)
