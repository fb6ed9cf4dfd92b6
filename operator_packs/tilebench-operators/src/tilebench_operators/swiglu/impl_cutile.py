"""SwiGLU's gate in cuTile: the operator is elementwise, so one block computes one tile of the flattened matrices."""

import math

import cuda.tile as ct
import torch
from tilebench_core import Kernel

from tilebench_operators._elementwise import cutile_default, cutile_space

APPROX = ct.RoundingMode.APPROX  # a division of two instructions: exact to two units in the last place of fp32
LOG2_E = math.log2(math.e)  # exp(x) = 2^(x·log2 e), and the GPU has an instruction for 2^x


def gate(x, y, z, i, TILE, CHECK):
    """Compute tile i of z. CHECK is constant: whether the tile may reach beyond n."""
    a = ct.load(x, (i,), (TILE,), check_bounds=CHECK).astype(ct.float32)
    b = ct.load(y, (i,), (TILE,), check_bounds=CHECK).astype(ct.float32)
    # x·sigmoid(x) with one division
    silu = ct.truediv(a, 1.0 + ct.exp2(a * -LOG2_E, flush_to_zero=True), rounding_mode=APPROX, flush_to_zero=True)
    ct.store(z, (i,), (silu * b).astype(z.dtype), check_bounds=CHECK)


@ct.kernel
def swiglu_kernel(x, y, z, TILE: ct.Constant[int]):
    """x, y and z are [n]. Only the last tile may reach beyond n: what is loaded there is never stored.

    A load with a check becomes a branch, into which the compiler moves the arithmetic on what was loaded: the next load then
    waits for it. So the tiles inside are loaded without.
    """
    i = ct.bid(0)
    if (i + 1) * TILE <= x.shape[0]:
        gate(x, y, z, i, TILE, False)
    else:
        gate(x, y, z, i, TILE, True)


def run(x: torch.Tensor, y: torch.Tensor, *, TILE: int) -> torch.Tensor:
    """Return z = x·sigmoid(x)·y; x, y, z [M, N] of one dtype, contiguous."""
    z = torch.empty_like(x)
    grid = (ct.cdiv(x.numel(), TILE),)
    ct.launch(torch.cuda.current_stream(), grid, swiglu_kernel, (x.view(-1), y.view(-1), z.view(-1), TILE))
    return z


KERNEL = Kernel(run=run, default=cutile_default, space=cutile_space)
