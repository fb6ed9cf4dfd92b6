"""Gated, biased SiLU in cuTile: one block computes one tile; every operand is read once."""

import math

import cuda.tile as ct
import torch
from tilebench_core import Kernel

from tilebench_operators._elementwise import cutile_default, cutile_space

APPROX = ct.RoundingMode.APPROX  # a division of two instructions: exact to two units in the last place of fp32
LOG2_E = math.log2(math.e)  # exp(x) = 2^(x·log2 e), and the GPU has an instruction for 2^x


@ct.kernel
def fused_activation_kernel(x, gate, bias, y, TILE: ct.Constant[int]):
    """All are [n]. The last tile may reach beyond n: what is loaded there is never stored."""
    i = ct.bid(0)
    z = ct.load(x, (i,), (TILE,)) * ct.load(gate, (i,), (TILE,)) + ct.load(bias, (i,), (TILE,))
    # z·sigmoid(z); for very negative z the exponential is inf, and y is -0
    result = ct.truediv(z, 1.0 + ct.exp2(z * -LOG2_E, flush_to_zero=True), rounding_mode=APPROX)
    ct.store(y, (i,), result)


def run(x: torch.Tensor, gate: torch.Tensor, bias: torch.Tensor, *, TILE: int) -> torch.Tensor:
    """Return y = silu(x·gate + bias); all [n], fp32."""
    y = torch.empty_like(x)
    grid = (ct.cdiv(x.numel(), TILE),)
    ct.launch(torch.cuda.current_stream(), grid, fused_activation_kernel, (x, gate, bias, y, TILE))
    return y


KERNEL = Kernel(run=run, default=cutile_default, space=cutile_space)
