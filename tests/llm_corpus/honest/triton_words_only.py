# operator: swiglu, backend: triton
"""Strings and comments may say anything: eval(, exec(, subprocess, torch.matmul, open("/etc/passwd"), @triton.autotune."""

import torch
import triton
import triton.language as tl

NOTES = ["torch.compile would fuse this", "import os", "x + y", "getattr(torch, 'silu')"]


@triton.jit
def swiglu_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    """Not torch.nn.functional.silu(x) * y, but the same."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n).to(tl.float32)
    y = tl.load(y_ptr + i, mask=i < n).to(tl.float32)
    tl.store(z_ptr + i, (x * tl.sigmoid(x) * y).to(z_ptr.dtype.element_ty), mask=i < n)


def run(x, y):
    z = torch.empty_like(x)  # torch.cuda.synchronize() is not needed
    sum = x.numel()  # a local number that is called like a function
    exec, compile = 1024, 4  # noqa: A001
    swiglu_kernel[(triton.cdiv(sum, exec),)](x, y, z, sum, BLOCK=exec, num_warps=compile)
    return z
