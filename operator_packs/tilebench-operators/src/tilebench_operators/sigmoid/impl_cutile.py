"""Logistic sigmoid in cuTile: one block computes one tile in fp32."""

import math

import cuda.tile as ct
import torch
from tilebench_core import Kernel

from tilebench_operators._elementwise import cutile_default, cutile_space

APPROX = ct.RoundingMode.APPROX  # a division of two instructions: exact to two units in the last place of fp32
LOG2_E = math.log2(math.e)  # exp(x) = 2^(x·log2 e), and the GPU has an instruction for 2^x


def sigmoid(x, y, i, TILE, CHECK):
    """Compute tile i of y. CHECK is constant: whether the tile may reach beyond n."""
    t = ct.load(x, (i,), (TILE,), check_bounds=CHECK).astype(ct.float32)
    # For very negative x the exponential is inf, and y is 0.
    divisor = 1.0 + ct.exp2(t * -LOG2_E, flush_to_zero=True)
    result = ct.truediv(1.0, divisor, rounding_mode=APPROX, flush_to_zero=True)
    ct.store(y, (i,), result.astype(y.dtype), check_bounds=CHECK)


@ct.kernel
def sigmoid_kernel(x, y, TILE: ct.Constant[int]):
    """x and y are [n]. Only the last tile may reach beyond n: what is loaded there is never stored.

    A load with a check becomes a branch, into which the compiler moves the arithmetic on what was loaded: the next load then
    waits for it. So the tiles inside are loaded without.
    """
    i = ct.bid(0)
    if (i + 1) * TILE <= x.shape[0]:
        sigmoid(x, y, i, TILE, False)
    else:
        sigmoid(x, y, i, TILE, True)


def run(x: torch.Tensor, n: int, *, TILE: int) -> torch.Tensor:
    """Return y = 1 / (1 + exp(-x)); x, y [n] of one dtype."""
    y = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(n, TILE),), sigmoid_kernel, (x, y, TILE))
    return y


KERNEL = Kernel(run=run, default=cutile_default, space=cutile_space)
