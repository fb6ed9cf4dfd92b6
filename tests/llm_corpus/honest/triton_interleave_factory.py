# operator: interleave, backend: triton
"""A factory makes the kernel once per block size and keeps what it has made."""

import torch
import triton
import triton.language as tl

KERNELS = {}


def make_kernel():
    @triton.jit
    def interleave_kernel(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):
        i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + i, mask=i < n)
        b = tl.load(b_ptr + i, mask=i < n)
        o = tl.program_id(0).to(tl.int64) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
        tl.store(out_ptr + o, tl.interleave(a, b), mask=o < 2 * n)

    return interleave_kernel


def kernel_of(dtype):
    if dtype not in KERNELS:
        KERNELS[dtype] = make_kernel()
    return KERNELS[dtype]


def run(a, b, N):
    out = torch.empty(2 * N, dtype=a.dtype, device=a.device)
    kernel_of(a.dtype)[(triton.cdiv(N, 1024),)](a, b, out, N, BLOCK=1024)
    return out
