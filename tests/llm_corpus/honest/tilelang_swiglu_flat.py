# operator: swiglu, backend: tilelang
"""The matrices are one run of numbers: views with another shape copy nothing."""

import tilelang
import tilelang.language as T
import torch


@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def swiglu_factory(dtype, BLOCK, threads):
    n = T.dynamic("n")

    @T.prim_func
    def swiglu_kernel(x: T.Tensor((n,), dtype), y: T.Tensor((n,), dtype), z: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, BLOCK), threads=threads) as block:
            start = block * BLOCK
            if start + BLOCK <= n:
                for i in T.Parallel(BLOCK):
                    v = T.cast(x[start + i], T.float32)
                    z[start + i] = T.cast(v / (1.0 + T.exp(-v)) * T.cast(y[start + i], T.float32), dtype)
            else:
                for i in T.Parallel(BLOCK):
                    if start + i < n:
                        v = T.cast(x[start + i], T.float32)
                        z[start + i] = T.cast(v / (1.0 + T.exp(-v)) * T.cast(y[start + i], T.float32), dtype)

    return swiglu_kernel


def silu_and_mul(x, y, z):
    swiglu_factory(x.dtype, 2048, 128)(x.view(-1), y.view(-1), z.view(-1))


def run(x, y):
    z = torch.empty_like(x)
    silu_and_mul(x, y, z)
    return z
