"""Gated, biased SiLU in Triton: one program computes one block; every operand is read once."""

import torch
import triton
import triton.language as tl
from tilebench_core import Kernel

from tilebench_operators._elementwise import triton_default, triton_space


@triton.jit
def fused_activation_kernel(x_ptr, gate_ptr, bias_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    gate = tl.load(gate_ptr + offsets, mask=mask)
    bias = tl.load(bias_ptr + offsets, mask=mask)
    z = x * gate + bias
    y = z / (1.0 + tl.exp(-z))  # z·sigmoid(z); for very negative z the exponential is inf, and y is -0
    tl.store(y_ptr + offsets, y, mask=mask)


def run(x: torch.Tensor, gate: torch.Tensor, bias: torch.Tensor, *, BLOCK: int, num_warps: int) -> torch.Tensor:
    """Return y = silu(x·gate + bias); all [n], fp32."""
    y = torch.empty_like(x)
    n = x.numel()
    fused_activation_kernel[(triton.cdiv(n, BLOCK),)](x, gate, bias, y, n, BLOCK=BLOCK, num_warps=num_warps)
    return y


KERNEL = Kernel(run=run, default=triton_default, space=triton_space)
