"""Doubling in TileLang: one block of threads doubles one block of elements."""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Kernel

from tilebench_operators._tilelang_elementwise import tilelang_default, tilelang_space


@tilelang.jit
def mul2_kernel(dtype: torch.dtype, BLOCK: int, threads: int):
    n = T.dynamic("n")

    @T.prim_func
    def mul2(x: T.Tensor((n,), dtype), y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, BLOCK), threads=threads) as block:
            start = block * BLOCK
            # Only the last block tests its bounds: a test per element would keep the loads from being 16 bytes wide.
            if start + BLOCK <= n:
                for i in T.Parallel(BLOCK):
                    y[start + i] = x[start + i] + x[start + i]  # exact in every dtype
            else:
                for i in T.Parallel(BLOCK):
                    if start + i < n:
                        y[start + i] = x[start + i] + x[start + i]

    return mul2


def run(x: torch.Tensor, *, BLOCK: int, threads: int) -> torch.Tensor:
    """Return y = 2·x; x, y [n] of one dtype."""
    y = torch.empty_like(x)
    mul2_kernel(x.dtype, BLOCK, threads)(x, y)
    return y


KERNEL = Kernel(run=run, default=tilelang_default, space=tilelang_space)
