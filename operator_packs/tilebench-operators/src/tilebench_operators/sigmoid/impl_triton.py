"""Logistic sigmoid in Triton: one program computes one block in fp32."""

import torch
import triton
import triton.language as tl
from tilebench_core import Kernel

from tilebench_operators._elementwise import triton_default, triton_space


@triton.jit
def sigmoid_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = 1.0 / (1.0 + tl.exp(-x))  # for very negative x the exponential is inf, and y is 0
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


def run(x: torch.Tensor, n: int, *, BLOCK: int, num_warps: int) -> torch.Tensor:
    """Return y = 1 / (1 + exp(-x)); x, y [n] of one dtype."""
    y = torch.empty_like(x)
    sigmoid_kernel[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK=BLOCK, num_warps=num_warps)
    return y


KERNEL = Kernel(run=run, default=triton_default, space=triton_space)
