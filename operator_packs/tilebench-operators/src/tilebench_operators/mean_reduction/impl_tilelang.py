"""Mean over the last axis in TileLang: one block adds up one row, lane by lane, and reduces its lanes once."""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tilelang_rows import stream_default, stream_space, vector_width


@tilelang.jit
def mean_kernel(dtype: torch.dtype, BLOCK: int, VEC: int, threads: int):
    """One block, one row in chunks of BLOCK; VEC divides cols. Zeros beyond a row's end add nothing."""
    rows, cols = T.dynamic("rows"), T.dynamic("cols")

    @T.prim_func
    def mean_row(x: T.Tensor((rows, cols), dtype), y: T.Tensor((rows,), T.float32)):
        with T.Kernel(rows, threads=threads) as row:
            T.assume(cols % VEC == 0)  # so that every row starts at a multiple of VEC, and loads are VEC wide
            sums = T.alloc_fragment((1, BLOCK), T.float32)
            total = T.alloc_fragment((1,), T.float32)
            T.clear(sums)
            for chunk in T.serial(T.ceildiv(cols, BLOCK)):
                for i, j in T.Parallel(1, BLOCK):
                    k = chunk * BLOCK + j
                    sums[i, j] += T.if_then_else(k < cols, T.cast(x[row, k], T.float32), 0)
            T.reduce_sum(sums, total, dim=1)
            for i in T.Parallel(1):
                y[row + i] = total[i] / T.cast(cols, T.float32)

    return mean_row


def run(x: torch.Tensor, dim: int, *, BLOCK: int, threads: int) -> torch.Tensor:
    """Return the mean of x [M, N] over its last axis (`dim` is 1), [M] fp32."""
    rows, cols = x.shape
    y = torch.empty(rows, dtype=torch.float32, device=x.device)
    mean_kernel(x.dtype, BLOCK, vector_width(cols, x.element_size()), threads)(x, y)
    return y


def default(case: Case) -> Config:
    return stream_default(case["M"], case["N"], case.dtype_size)


def space(case: Case) -> list[Config]:
    return stream_space(case["N"], case.dtype_size)


KERNEL = Kernel(run=run, default=default, space=space)
