"""Rectified linear unit in Triton: one program computes one block."""

import torch
import triton
import triton.language as tl
from tilebench_core import Kernel

from tilebench_operators._elementwise import triton_default, triton_space


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    if x.dtype.is_floating():
        x = x.to(tl.float32)
    y = tl.where(x < 0, 0, x)  # NaN is not below zero, so it passes through; tl.maximum would turn it into 0
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


def run(x: torch.Tensor, *, BLOCK: int, num_warps: int) -> torch.Tensor:
    """Return y = max(x, 0); x, y [n] of one dtype."""
    y = torch.empty_like(x)
    n = x.numel()
    relu_kernel[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK=BLOCK, num_warps=num_warps)
    return y


KERNEL = Kernel(run=run, default=triton_default, space=triton_space)
