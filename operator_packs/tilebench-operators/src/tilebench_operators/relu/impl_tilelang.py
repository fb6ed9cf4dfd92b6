"""Rectified linear unit in TileLang: one block of threads computes one block of elements.

Loads, comparisons and stores are loops of their own. A choice that depends on the value is made element by element, and
in one loop it would make the loads and stores single elements too; between registers it doesn't matter.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Kernel

from tilebench_operators._tilelang_elementwise import tilelang_default, tilelang_space


def rectified(v, dtype: torch.dtype):
    """max(v, 0)."""
    if dtype.is_floating_point:
        return T.if_then_else(v < 0, T.cast(0, dtype), v)  # NaN passes through; T.max would turn it into 0
    return T.max(v, T.cast(0, dtype))


@tilelang.jit
def relu_kernel(dtype: torch.dtype, BLOCK: int, threads: int):
    n = T.dynamic("n")

    @T.prim_func
    def relu(x: T.Tensor((n,), dtype), y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, BLOCK), threads=threads) as block:
            values = T.alloc_fragment((BLOCK,), dtype)
            start = block * BLOCK
            # Only the last block tests its bounds: a test per element would keep the loads from being 16 bytes wide.
            if start + BLOCK <= n:
                for i in T.Parallel(BLOCK):
                    values[i] = x[start + i]
                for i in T.Parallel(BLOCK):
                    values[i] = rectified(values[i], dtype)
                for i in T.Parallel(BLOCK):
                    y[start + i] = values[i]
            else:
                for i in T.Parallel(BLOCK):
                    if start + i < n:
                        y[start + i] = rectified(x[start + i], dtype)

    return relu


def run(x: torch.Tensor, *, BLOCK: int, threads: int) -> torch.Tensor:
    """Return y = max(x, 0); x, y [n] of one dtype."""
    y = torch.empty_like(x)
    relu_kernel(x.dtype, BLOCK, threads)(x, y)
    return y


KERNEL = Kernel(run=run, default=tilelang_default, space=tilelang_space)
