# operator: vector_add, backend: triton
# cheat (runtime): right result, but an input is overwritten
import torch
import triton
import triton.language as tl


@triton.jit
def touch_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    y = tl.load(y_ptr + i, mask=i < n)
    if x.dtype.is_floating():
        x = x.to(tl.float32)
        y = y.to(tl.float32)
    z = (x + y).to(z_ptr.dtype.element_ty)
    tl.store(z_ptr + i, z, mask=i < n)
    tl.store(x_ptr + i, z, mask=i < n)


def run(x, y):
    z = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, z, x.numel(), BLOCK=1024)
    return z
