"""Vector addition in Triton: one program adds one block."""

import torch
import triton
import triton.language as tl
from tilebench_core import Kernel

from tilebench_operators._elementwise import triton_default, triton_space


@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    if x.dtype.is_floating():  # bf16 and fp16 are added in fp32 and rounded once, as PyTorch does
        x = x.to(tl.float32)
        y = y.to(tl.float32)
    z = x + y
    tl.store(z_ptr + offsets, z.to(z_ptr.dtype.element_ty), mask=mask)


def run(x: torch.Tensor, y: torch.Tensor, *, BLOCK: int, num_warps: int) -> torch.Tensor:
    """Return z = x + y; x, y, z [n] of one dtype."""
    z = torch.empty_like(x)
    n = x.numel()
    add_kernel[(triton.cdiv(n, BLOCK),)](x, y, z, n, BLOCK=BLOCK, num_warps=num_warps)
    return z


KERNEL = Kernel(run=run, default=triton_default, space=triton_space)
