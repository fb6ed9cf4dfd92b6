# operator: vector_add, backend: triton
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask)
    y = tl.load(y_ptr + i, mask=mask)
    if x.dtype.is_floating():
        x = x.to(tl.float32)
        y = y.to(tl.float32)
    tl.store(z_ptr + i, (x + y).to(z_ptr.dtype.element_ty), mask=mask)


def run(x, y):
    z = torch.empty_like(x)
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)  # noqa: E731
    add_kernel[grid](x, y, z, n, BLOCK=1024, num_warps=4)
    return z
