# operator: softmax, backend: triton
"""The host functions are called like PyTorch's; torch.softmax itself is never called."""

import torch
import triton
import triton.language as tl


@triton.jit
def exp(x):
    return tl.exp2(x * 1.4426950408889634)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    mask = c < cols
    x = tl.load(x_ptr + row * cols + c, mask=mask, other=float("-inf")).to(tl.float32)
    e = exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * cols + c, y.to(y_ptr.dtype.element_ty), mask=mask)


def empty_like(x):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def softmax(x, dim):
    assert dim == -1
    y = empty_like(x)
    rows, cols = x.shape
    block = triton.next_power_of_2(cols)
    softmax_kernel[(rows,)](x, y, cols, BLOCK=block, num_warps=4 if block <= 2048 else 16)
    return y


def run(x):
    return softmax(x, dim=-1)
