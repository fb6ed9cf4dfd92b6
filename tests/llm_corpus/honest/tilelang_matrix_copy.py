# operator: matrix_copy, backend: tilelang
import functools

import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def copy_factory(dtype, BLOCK, threads):
    n = T.dynamic("n")

    @T.prim_func
    def copy_kernel(a: T.Tensor((n,), dtype), b: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, BLOCK), threads=threads) as block:
            for i in T.Parallel(BLOCK):
                if block * BLOCK + i < n:
                    b[block * BLOCK + i] = a[block * BLOCK + i]

    return copy_kernel


@functools.cache
def compiled(dtype):
    return copy_factory(dtype, 4096, 256)


def clone(a):
    b = torch.empty(a.shape, dtype=a.dtype, device=a.device)
    compiled(a.dtype)(a.view(-1), b.view(-1))
    return b


def run(A):
    return clone(A)
