"""Index of the maximum over the last axis in TileLang: one block takes a row, and each lane keeps its best value.

A lane meets its chunks in ascending order and changes its mind for strictly larger values only, so it holds its
lowest best column; among lanes with the same best value the lowest column wins. Columns are int32 all along.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tilelang_rows import row_layout, stream_default, stream_space, vector_width


@tilelang.jit
def argmax_kernel(dtype: torch.dtype, BLOCK: int, VEC: int, threads: int):
    """One block, one row in chunks of BLOCK; VEC divides cols. Beyond a row's end is -inf."""
    rows, cols = T.dynamic("rows"), T.dynamic("cols")
    layout = T.Fragment((1, BLOCK), forward_fn=row_layout(1, VEC, threads))

    @T.prim_func
    def argmax_row(x: T.Tensor((rows, cols), dtype), y: T.Tensor((rows,), T.int64)):
        with T.Kernel(rows, threads=threads) as row:
            T.assume(cols % VEC == 0)  # so that every row starts at a multiple of VEC, and loads are VEC wide
            values = T.alloc_fragment((1, BLOCK), T.float32)
            best = T.alloc_fragment((1, BLOCK), T.float32)
            columns = T.alloc_fragment((1, BLOCK), T.int32)
            maximum = T.alloc_fragment((1,), T.float32)
            lowest = T.alloc_fragment((1,), T.int32)
            T.annotate_layout({values: layout})  # else that of the int32 columns would halve the loads of fp16
            T.fill(best, -T.infinity(T.float32))
            for i, j in T.Parallel(1, BLOCK):
                columns[i, j] = j  # right for a row of -inf, too
            for chunk in T.serial(T.ceildiv(cols, BLOCK)):
                for i, j in T.Parallel(1, BLOCK):
                    k = chunk * BLOCK + j
                    values[i, j] = T.if_then_else(k < cols, T.cast(x[row, k], T.float32), -T.infinity(T.float32))
                for i, j in T.Parallel(1, BLOCK):
                    columns[i, j] = T.if_then_else(values[i, j] > best[i, j], chunk * BLOCK + j, columns[i, j])
                    best[i, j] = T.max(best[i, j], values[i, j])
            T.reduce_max(best, maximum, dim=1)
            for i, j in T.Parallel(1, BLOCK):
                columns[i, j] = T.if_then_else(best[i, j] == maximum[i], columns[i, j], T.max_value(T.int32))
            T.reduce_min(columns, lowest, dim=1)
            for i in T.Parallel(1):
                y[row + i] = T.cast(lowest[i], T.int64)

    return argmax_row


def run(x: torch.Tensor, dim: int, *, BLOCK: int, threads: int) -> torch.Tensor:
    """Return the index of the maximum of x [M, N] over its last axis (`dim` is 1), the lowest on ties, [M] int64."""
    rows, cols = x.shape
    y = torch.empty(rows, dtype=torch.int64, device=x.device)
    argmax_kernel(x.dtype, BLOCK, vector_width(cols, x.element_size()), threads)(x, y)
    return y


def default(case: Case) -> Config:
    return stream_default(case["M"], case["N"], case.dtype_size)


def space(case: Case) -> list[Config]:
    return stream_space(case["N"], case.dtype_size)


KERNEL = Kernel(run=run, default=default, space=space)
