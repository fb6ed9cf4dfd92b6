"""Vector addition in cuTile: one block adds one tile."""

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel


def add(x, y, z, i, TILE, CHECK):
    """Compute tile i of z. CHECK is constant: whether the tile may reach beyond n."""
    a = ct.load(x, (i,), (TILE,), check_bounds=CHECK)
    b = ct.load(y, (i,), (TILE,), check_bounds=CHECK)
    if x.dtype == ct.int8:
        ct.store(z, (i,), a + b, check_bounds=CHECK)
    else:  # bf16 and fp16 are added in fp32 and rounded once, as PyTorch does
        ct.store(z, (i,), (a.astype(ct.float32) + b.astype(ct.float32)).astype(z.dtype), check_bounds=CHECK)


@ct.kernel
def add_kernel(x, y, z, TILE: ct.Constant[int]):
    """x, y and z are [n]. Only the last tile may reach beyond n: what is loaded there is never stored.

    A load with a check becomes a branch, into which the compiler moves the arithmetic on what was loaded: the next load then
    waits for it. So the tiles inside are loaded without.
    """
    i = ct.bid(0)
    if (i + 1) * TILE <= x.shape[0]:
        add(x, y, z, i, TILE, False)
    else:
        add(x, y, z, i, TILE, True)


def run(x: torch.Tensor, y: torch.Tensor, *, TILE: int) -> torch.Tensor:
    """Return z = x + y; x, y, z [n] of one dtype."""
    z = torch.empty_like(x)
    grid = (ct.cdiv(x.numel(), TILE),)
    ct.launch(torch.cuda.current_stream(), grid, add_kernel, (x, y, z, TILE))
    return z


def default(case: Case) -> Config:
    return {"TILE": max(1024, 2048 // case.dtype_size)}


def space(case: Case) -> list[Config]:
    return [{"TILE": tile} for tile in (512, 1024, 2048, 4096, 8192)]


KERNEL = Kernel(run=run, default=default, space=space)
