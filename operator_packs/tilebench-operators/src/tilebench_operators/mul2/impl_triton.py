"""Doubling in Triton: one program doubles one block."""

import torch
import triton
import triton.language as tl
from tilebench_core import Kernel

from tilebench_operators._elementwise import triton_default, triton_space


@triton.jit
def mul2_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    if x.dtype.is_floating():
        y = (x.to(tl.float32) * 2.0).to(x.dtype)
    else:
        y = x * 2  # stays int8: a literal takes the tensor's type
    tl.store(y_ptr + offsets, y, mask=mask)


def run(x: torch.Tensor, *, BLOCK: int, num_warps: int) -> torch.Tensor:
    """Return y = 2·x; x, y [n] of one dtype."""
    y = torch.empty_like(x)
    n = x.numel()
    mul2_kernel[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK=BLOCK, num_warps=num_warps)
    return y


KERNEL = Kernel(run=run, default=triton_default, space=triton_space)
