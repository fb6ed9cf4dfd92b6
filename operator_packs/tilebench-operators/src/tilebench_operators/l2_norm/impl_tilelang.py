"""L2 normalization in TileLang: rows that fit are kept on chip and read once; a longer row is read twice.

Zeros beyond a row's end add nothing to the sum of squares.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tilelang_rows import row_default, row_layout, row_space, vector_width


@tilelang.jit
def rows_kernel(dtype: torch.dtype, ROWS: int, BLOCK: int, VEC: int, threads: int):
    """One block, ROWS rows: BLOCK >= cols, and VEC divides cols."""
    rows, cols = T.dynamic("rows"), T.dynamic("cols")
    layout = T.Fragment((ROWS, BLOCK), forward_fn=row_layout(ROWS, VEC, threads))

    @T.prim_func
    def l2_norm_rows(x: T.Tensor((rows, cols), dtype), y: T.Tensor((rows, cols), dtype), eps: T.float32):
        with T.Kernel(T.ceildiv(rows, ROWS), threads=threads) as block:
            T.assume(cols % VEC == 0)  # so that every row starts at a multiple of VEC, and loads are VEC wide
            values = T.alloc_fragment((ROWS, BLOCK), T.float32)
            squares = T.alloc_fragment((ROWS, BLOCK), T.float32)
            scale = T.alloc_fragment((ROWS,), T.float32)
            T.annotate_layout({values: layout})
            for i, j in T.Parallel(ROWS, BLOCK):
                inside = block * ROWS + i < rows and j < cols
                values[i, j] = T.if_then_else(inside, T.cast(x[block * ROWS + i, j], T.float32), 0)
            for i, j in T.Parallel(ROWS, BLOCK):
                squares[i, j] = values[i, j] * values[i, j]
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(ROWS):
                scale[i] = T.rsqrt(scale[i] + eps)
            for i, j in T.Parallel(ROWS, BLOCK):
                if block * ROWS + i < rows and j < cols:
                    y[block * ROWS + i, j] = T.cast(values[i, j] * scale[i], dtype)

    return l2_norm_rows


@tilelang.jit
def long_row_kernel(dtype: torch.dtype, BLOCK: int, VEC: int, threads: int):
    """One block, one row in chunks of BLOCK: the sum of squares, then the result."""
    rows, cols = T.dynamic("rows"), T.dynamic("cols")

    @T.prim_func
    def l2_norm_long_row(x: T.Tensor((rows, cols), dtype), y: T.Tensor((rows, cols), dtype), eps: T.float32):
        with T.Kernel(rows, threads=threads) as row:
            T.assume(cols % VEC == 0)
            values = T.alloc_fragment((1, BLOCK), T.float32)
            squares = T.alloc_fragment((1, BLOCK), T.float32)
            scale = T.alloc_fragment((1,), T.float32)
            T.clear(squares)
            for chunk in T.serial(T.ceildiv(cols, BLOCK)):
                for i, j in T.Parallel(1, BLOCK):
                    k = chunk * BLOCK + j
                    values[i, j] = T.if_then_else(k < cols, T.cast(x[row, k], T.float32), 0)
                for i, j in T.Parallel(1, BLOCK):
                    squares[i, j] += values[i, j] * values[i, j]
            T.reduce_sum(squares, scale, dim=1)
            scale[0] = T.rsqrt(scale[0] + eps)
            for chunk in T.serial(T.ceildiv(cols, BLOCK)):
                for i, j in T.Parallel(1, BLOCK):
                    k = chunk * BLOCK + j
                    if k < cols:
                        y[row, k] = T.cast(T.cast(x[row, k], T.float32) * scale[i], dtype)

    return l2_norm_long_row


def run(x: torch.Tensor, eps: float, *, ROWS: int, BLOCK: int, threads: int) -> torch.Tensor:
    """Return x [1, rows, K] over the square root of (the sum of squares of its last axis + eps), like x."""
    cols = x.shape[-1]
    y = torch.empty_like(x)
    vec = vector_width(cols, x.element_size())
    if cols <= BLOCK:
        rows_kernel(x.dtype, ROWS, BLOCK, vec, threads)(x.view(-1, cols), y.view(-1, cols), eps)
    else:
        long_row_kernel(x.dtype, BLOCK, vec, threads)(x.view(-1, cols), y.view(-1, cols), eps)
    return y


def default(case: Case) -> Config:
    return row_default(case["rows"], case["K"], case.dtype_size)


def space(case: Case) -> list[Config]:
    return row_space(case["rows"], case["K"], case.dtype_size)


KERNEL = Kernel(run=run, default=default, space=space)
