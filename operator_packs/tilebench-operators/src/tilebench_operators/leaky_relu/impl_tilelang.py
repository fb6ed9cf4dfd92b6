"""Leaky rectified linear unit in TileLang: one block of threads computes one block of elements."""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Kernel

from tilebench_operators._tilelang_elementwise import tilelang_default, tilelang_space


def leaky(v, dtype: torch.dtype):
    """v if v > 0, else 0.01·v, in fp32 and rounded once to dtype.

    That is the larger of the two. A choice by comparison is compiled element by element, loads and stores included.
    """
    wide = T.cast(v, T.float32)
    return T.cast(T.max(wide, 0.01 * wide), dtype)


@tilelang.jit
def leaky_relu_kernel(dtype: torch.dtype, BLOCK: int, threads: int):
    n = T.dynamic("n")

    @T.prim_func
    def leaky_relu(x: T.Tensor((n,), dtype), y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, BLOCK), threads=threads) as block:
            start = block * BLOCK
            # Only the last block tests its bounds: a test per element would keep the loads from being 16 bytes wide.
            if start + BLOCK <= n:
                for i in T.Parallel(BLOCK):
                    y[start + i] = leaky(x[start + i], dtype)
            else:
                for i in T.Parallel(BLOCK):
                    if start + i < n:
                        y[start + i] = leaky(x[start + i], dtype)

    return leaky_relu


def run(x: torch.Tensor, n: int, *, BLOCK: int, threads: int) -> torch.Tensor:
    """Return y = x where x > 0, else 0.01·x; x, y [n] of one dtype."""
    y = torch.empty_like(x)
    leaky_relu_kernel(x.dtype, BLOCK, threads)(x, y)
    return y


KERNEL = Kernel(run=run, default=tilelang_default, space=tilelang_space)
