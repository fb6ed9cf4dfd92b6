"""Narrowing to fp16 in Triton: one program casts one block."""

import torch
import triton
import triton.language as tl
from tilebench_core import Kernel

from tilebench_operators._elementwise import triton_default, triton_space


@triton.jit
def cast_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, x.to(tl.float16), mask=mask)  # to the nearest, ties to even


def run(x: torch.Tensor, *, BLOCK: int, num_warps: int) -> torch.Tensor:
    """Return y [n], fp16, for x [n], fp32."""
    y = torch.empty_like(x, dtype=torch.float16)
    n = x.numel()
    cast_kernel[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK=BLOCK, num_warps=num_warps)
    return y


# The default gives a thread 32 bytes of x, which are the 16 bytes of y that one store holds.
KERNEL = Kernel(run=run, default=triton_default, space=triton_space)
