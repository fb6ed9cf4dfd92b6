"""Dropout with a given mask in TileLang: one block of threads computes one block of elements.

Loads, choices and stores are loops of their own. A choice that depends on a value is made element by element, and in
one loop it would make the loads and stores single elements too; between registers it doesn't matter.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Kernel

from tilebench_operators._tilelang_elementwise import tilelang_default, tilelang_space


def kept(v, keep, scale, dtype: torch.dtype):
    """v·scale in fp32 where keep ≠ 0, else 0, rounded to dtype."""
    return T.if_then_else(keep != 0, T.cast(T.cast(v, T.float32) * scale, dtype), T.cast(0, dtype))


@tilelang.jit
def dropout_kernel(dtype: torch.dtype, BLOCK: int, threads: int):
    n = T.dynamic("n")

    @T.prim_func
    def dropout(x: T.Tensor((n,), dtype), keep: T.Tensor((n,), dtype), y: T.Tensor((n,), dtype), scale: T.float32):
        with T.Kernel(T.ceildiv(n, BLOCK), threads=threads) as block:
            values = T.alloc_fragment((BLOCK,), dtype)
            keeps = T.alloc_fragment((BLOCK,), dtype)
            start = block * BLOCK
            # Only the last block tests its bounds: a test per element would keep the loads from being 16 bytes wide.
            if start + BLOCK <= n:
                for i in T.Parallel(BLOCK):
                    values[i] = x[start + i]
                for i in T.Parallel(BLOCK):
                    keeps[i] = keep[start + i]
                for i in T.Parallel(BLOCK):
                    values[i] = kept(values[i], keeps[i], scale, dtype)
                for i in T.Parallel(BLOCK):
                    y[start + i] = values[i]
            else:
                for i in T.Parallel(BLOCK):
                    if start + i < n:
                        y[start + i] = kept(x[start + i], keep[start + i], scale, dtype)

    return dropout


def run(x: torch.Tensor, keep: torch.Tensor, p: float, *, BLOCK: int, threads: int) -> torch.Tensor:
    """Return y = x / (1 - p) where keep ≠ 0, else 0; x, keep, y [n] of one dtype."""
    y = torch.empty_like(x)
    dropout_kernel(x.dtype, BLOCK, threads)(x, keep, y, 1 / (1 - p))
    return y


KERNEL = Kernel(run=run, default=tilelang_default, space=tilelang_space)
