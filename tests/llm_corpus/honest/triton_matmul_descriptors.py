# operator: streamk_matmul, backend: triton
"""Tensor descriptors where rows are aligned, pointers elsewhere."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def tma_kernel(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


@triton.jit
def pointer_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)[:, None]
    n = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m * K + k[None, :], mask=(m < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n, mask=(k[:, None] < K) & (n < N), other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m * N + n, acc.to(c_ptr.dtype.element_ty), mask=(m < M) & (n < N))


def aligned(*tensors):
    return all(t.data_ptr() % 16 == 0 and t.stride(0) * t.element_size() % 16 == 0 for t in tensors)


def run(a, b):
    M, K = a.shape
    N = b.shape[-1]
    c = a.new_empty((M, N))
    BM, BN, BK = 64, 64, 32
    grid = (triton.cdiv(M, BM), triton.cdiv(N, BN))
    if aligned(a, b, c):
        boxes = ((a, [BM, BK]), (b, [BK, BN]), (c, [BM, BN]))
        descriptors = [TensorDescriptor.from_tensor(tensor, box) for tensor, box in boxes]
        tma_kernel[grid](*descriptors, K, BM=BM, BN=BN, BK=BK, num_warps=4, num_stages=3)
    else:
        pointer_kernel[grid](a, b, c, M, N, K, BM=BM, BN=BN, BK=BK)
    return c
