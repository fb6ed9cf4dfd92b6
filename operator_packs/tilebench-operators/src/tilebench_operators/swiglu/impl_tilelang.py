"""SwiGLU's gate in TileLang: the operator is elementwise, so one block of threads computes one block of the flattened
matrices."""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Kernel

from tilebench_operators._tilelang_elementwise import tilelang_default, tilelang_space


def gated(v, gate, dtype: torch.dtype):
    """v·sigmoid(v)·gate in fp32, with one division, rounded once to dtype."""
    wide = T.cast(v, T.float32)
    return T.cast(wide / (1 + T.exp(-wide)) * T.cast(gate, T.float32), dtype)


# The hardware's exponential and reciprocal err by about 2^-22, far below the tolerance; the exact ones take so many
# instructions that 2-byte types would wait for them rather than for the memory.
@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def swiglu_kernel(dtype: torch.dtype, BLOCK: int, threads: int):
    n = T.dynamic("n")

    @T.prim_func
    def swiglu(x: T.Tensor((n,), dtype), y: T.Tensor((n,), dtype), z: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, BLOCK), threads=threads) as block:
            start = block * BLOCK
            # Only the last block tests its bounds: a test per element would keep the loads from being 16 bytes wide.
            if start + BLOCK <= n:
                for i in T.Parallel(BLOCK):
                    z[start + i] = gated(x[start + i], y[start + i], dtype)
            else:
                for i in T.Parallel(BLOCK):
                    if start + i < n:
                        z[start + i] = gated(x[start + i], y[start + i], dtype)

    return swiglu


def run(x: torch.Tensor, y: torch.Tensor, *, BLOCK: int, threads: int) -> torch.Tensor:
    """Return z = x·sigmoid(x)·y; x, y, z [M, N] of one dtype, contiguous."""
    z = torch.empty_like(x)
    swiglu_kernel(x.dtype, BLOCK, threads)(x.view(-1), y.view(-1), z.view(-1))
    return z


KERNEL = Kernel(run=run, default=tilelang_default, space=tilelang_space)
