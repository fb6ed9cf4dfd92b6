"""Logistic sigmoid in TileLang: one block of threads computes one block of elements in fp32."""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Kernel

from tilebench_operators._tilelang_elementwise import tilelang_default, tilelang_space


def logistic(v, dtype: torch.dtype):
    """1 / (1 + exp(-v)) in fp32. For very negative v the exponential is inf, and the result is 0."""
    return T.cast(1 / (1 + T.exp(-T.cast(v, T.float32))), dtype)


# The hardware's exponential and reciprocal err by about 2^-22, far below the tolerance; the exact ones take so many
# instructions that 2-byte types would wait for them rather than for the memory.
@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def sigmoid_kernel(dtype: torch.dtype, BLOCK: int, threads: int):
    n = T.dynamic("n")

    @T.prim_func
    def sigmoid(x: T.Tensor((n,), dtype), y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, BLOCK), threads=threads) as block:
            start = block * BLOCK
            # Only the last block tests its bounds: a test per element would keep the loads from being 16 bytes wide.
            if start + BLOCK <= n:
                for i in T.Parallel(BLOCK):
                    y[start + i] = logistic(x[start + i], dtype)
            else:
                for i in T.Parallel(BLOCK):
                    if start + i < n:
                        y[start + i] = logistic(x[start + i], dtype)

    return sigmoid


def run(x: torch.Tensor, n: int, *, BLOCK: int, threads: int) -> torch.Tensor:
    """Return y = 1 / (1 + exp(-x)); x, y [n] of one dtype."""
    y = torch.empty_like(x)
    sigmoid_kernel(x.dtype, BLOCK, threads)(x, y)
    return y


KERNEL = Kernel(run=run, default=tilelang_default, space=tilelang_space)
