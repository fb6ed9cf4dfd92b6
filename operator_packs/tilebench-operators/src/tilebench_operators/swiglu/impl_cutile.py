"""SwiGLU's gate in cuTile: the operator is elementwise, so one block computes one tile of the flattened matrices."""

import math

import cuda.tile as ct
import torch
from tilebench_core import Kernel

from tilebench_operators._elementwise import cutile_default, cutile_space

APPROX = ct.RoundingMode.APPROX  # a division of two instructions: exact to two units in the last place of fp32
LOG2_E = math.log2(math.e)  # exp(x) = 2^(x·log2 e), and the GPU has an instruction for 2^x


@ct.kernel
def swiglu_kernel(x, y, z, TILE: ct.Constant[int]):
    """x, y and z are [n]. The last tile may reach beyond n: what is loaded there is never stored."""
    i = ct.bid(0)
    a = ct.load(x, (i,), (TILE,)).astype(ct.float32)
    b = ct.load(y, (i,), (TILE,)).astype(ct.float32)
    # x·sigmoid(x) with one division
    silu = ct.truediv(a, 1.0 + ct.exp2(a * -LOG2_E, flush_to_zero=True), rounding_mode=APPROX)
    ct.store(z, (i,), (silu * b).astype(z.dtype))


def run(x: torch.Tensor, y: torch.Tensor, *, TILE: int) -> torch.Tensor:
    """Return z = x·sigmoid(x)·y; x, y, z [M, N] of one dtype, contiguous."""
    z = torch.empty_like(x)
    grid = (ct.cdiv(x.numel(), TILE),)
    ct.launch(torch.cuda.current_stream(), grid, swiglu_kernel, (x.view(-1), y.view(-1), z.view(-1), TILE))
    return z


KERNEL = Kernel(run=run, default=cutile_default, space=cutile_space)
