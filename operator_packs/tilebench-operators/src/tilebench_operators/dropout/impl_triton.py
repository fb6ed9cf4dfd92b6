"""Dropout with a given mask in Triton: one program computes one block."""

import torch
import triton
import triton.language as tl
from tilebench_core import Kernel

from tilebench_operators._elementwise import triton_default, triton_space


@triton.jit
def dropout_kernel(x_ptr, keep_ptr, y_ptr, scale, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    keep = tl.load(keep_ptr + offsets, mask=mask).to(tl.float32)
    y = tl.where(keep != 0.0, x * scale, 0.0)
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


def run(x: torch.Tensor, keep: torch.Tensor, p: float, *, BLOCK: int, num_warps: int) -> torch.Tensor:
    """Return y = x / (1 - p) where keep ≠ 0, else 0; x, keep, y [n] of one dtype."""
    y = torch.empty_like(x)
    n = x.numel()
    scale = 1.0 / (1.0 - p)
    dropout_kernel[(triton.cdiv(n, BLOCK),)](x, keep, y, scale, n, BLOCK=BLOCK, num_warps=num_warps)
    return y


KERNEL = Kernel(run=run, default=triton_default, space=triton_space)
