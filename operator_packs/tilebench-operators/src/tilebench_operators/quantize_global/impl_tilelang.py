"""Narrowing to fp16 in TileLang: one block of threads casts one block of elements."""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Kernel

from tilebench_operators._tilelang_elementwise import tilelang_default, tilelang_space


@tilelang.jit
def cast_kernel(BLOCK: int, threads: int):
    n = T.dynamic("n")

    @T.prim_func
    def cast(x: T.Tensor((n,), T.float32), y: T.Tensor((n,), T.float16)):
        with T.Kernel(T.ceildiv(n, BLOCK), threads=threads) as block:
            start = block * BLOCK
            # Only the last block tests its bounds: a test per element would keep the loads from being 16 bytes wide.
            if start + BLOCK <= n:
                for i in T.Parallel(BLOCK):
                    y[start + i] = T.cast(x[start + i], T.float16)  # to the nearest, ties to even
            else:
                for i in T.Parallel(BLOCK):
                    if start + i < n:
                        y[start + i] = T.cast(x[start + i], T.float16)

    return cast


def run(x: torch.Tensor, *, BLOCK: int, threads: int) -> torch.Tensor:
    """Return y [n], fp16, for x [n], fp32."""
    y = torch.empty_like(x, dtype=torch.float16)
    cast_kernel(BLOCK, threads)(x, y)
    return y


# A load of 16 bytes of x makes a store of 8 bytes of y: neighbouring threads then have neighbours of both.
KERNEL = Kernel(run=run, default=tilelang_default, space=tilelang_space)
