"""SwiGLU's gate in Triton: the operator is elementwise, so one program computes one block of the flattened matrices."""

import torch
import triton
import triton.language as tl
from tilebench_core import Kernel

from tilebench_operators._elementwise import triton_default, triton_space


@triton.jit
def swiglu_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=mask).to(tl.float32)
    z = x / (1.0 + tl.exp(-x)) * y  # x·sigmoid(x) with one division
    tl.store(z_ptr + offsets, z.to(z_ptr.dtype.element_ty), mask=mask)


def run(x: torch.Tensor, y: torch.Tensor, *, BLOCK: int, num_warps: int) -> torch.Tensor:
    """Return z = x·sigmoid(x)·y; x, y, z [M, N] of one dtype, contiguous."""
    z = torch.empty_like(x)
    n = x.numel()
    swiglu_kernel[(triton.cdiv(n, BLOCK),)](x, y, z, n, BLOCK=BLOCK, num_warps=num_warps)
    return z


KERNEL = Kernel(run=run, default=triton_default, space=triton_space)
