"""Layer normalization in TileLang: rows that fit are kept on chip and read once; a longer row is read three times.

The variance is summed from the centred values, so that a large mean costs no digits.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tilelang_rows import row_default, row_layout, row_space, vector_width

# Registers of a thread beside its part of a row: addresses, sums, and parameters that are fetched ahead.
ROOM = {2: 40, 4: 64}


@tilelang.jit
def rows_kernel(dtype: torch.dtype, ROWS: int, BLOCK: int, VEC: int, threads: int):
    """One block, ROWS rows: BLOCK >= cols, and VEC divides cols."""
    rows, cols = T.dynamic("rows"), T.dynamic("cols")
    resident = min(32, 65536 // (ROWS * BLOCK + threads * ROOM[dtype.itemsize]))  # blocks of the registers of an SM
    layout = T.Fragment((ROWS, BLOCK), forward_fn=row_layout(ROWS, VEC, threads))

    @T.prim_func
    def layernorm_rows(
        x: T.Tensor((rows, cols), dtype),
        weight: T.Tensor((cols,), dtype),
        bias: T.Tensor((cols,), dtype),
        y: T.Tensor((rows, cols), dtype),
        eps: T.float32,
    ):
        with T.Kernel(T.ceildiv(rows, ROWS), threads=threads) as block:
            T.assume(cols % VEC == 0)  # so that every row starts at a multiple of VEC, and loads are VEC wide
            values = T.alloc_fragment((ROWS, BLOCK), T.float32)
            squares = T.alloc_fragment((ROWS, BLOCK), T.float32)
            mean = T.alloc_fragment((ROWS,), T.float32)
            scale = T.alloc_fragment((ROWS,), T.float32)
            T.annotate_layout({values: layout})
            # Left alone, the compiler fetches parameters so early that one block takes the registers of two.
            T.annotate_min_blocks_per_sm(resident)
            for i, j in T.Parallel(ROWS, BLOCK):
                inside = block * ROWS + i < rows and j < cols
                values[i, j] = T.if_then_else(inside, T.cast(x[block * ROWS + i, j], T.float32), 0)
            T.reduce_sum(values, mean, dim=1)
            for i in T.Parallel(ROWS):
                mean[i] = mean[i] / T.cast(cols, T.float32)
            for i, j in T.Parallel(ROWS, BLOCK):
                values[i, j] = T.if_then_else(j < cols, values[i, j] - mean[i], 0)
            for i, j in T.Parallel(ROWS, BLOCK):
                squares[i, j] = values[i, j] * values[i, j]
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(ROWS):
                scale[i] = T.rsqrt(scale[i] / T.cast(cols, T.float32) + eps)
            for i, j in T.Parallel(ROWS, BLOCK):
                if block * ROWS + i < rows and j < cols:
                    y[block * ROWS + i, j] = T.cast(
                        values[i, j] * scale[i] * T.cast(weight[j], T.float32) + T.cast(bias[j], T.float32), dtype
                    )

    return layernorm_rows


@tilelang.jit
def long_row_kernel(dtype: torch.dtype, BLOCK: int, VEC: int, threads: int):
    """One block, one row in chunks of BLOCK: mean, then variance, then the result."""
    rows, cols = T.dynamic("rows"), T.dynamic("cols")

    @T.prim_func
    def layernorm_long_row(
        x: T.Tensor((rows, cols), dtype),
        weight: T.Tensor((cols,), dtype),
        bias: T.Tensor((cols,), dtype),
        y: T.Tensor((rows, cols), dtype),
        eps: T.float32,
    ):
        with T.Kernel(rows, threads=threads) as row:
            T.assume(cols % VEC == 0)
            values = T.alloc_fragment((1, BLOCK), T.float32)
            sums = T.alloc_fragment((1, BLOCK), T.float32)
            mean = T.alloc_fragment((1,), T.float32)
            scale = T.alloc_fragment((1,), T.float32)
            T.clear(sums)
            for chunk in T.serial(T.ceildiv(cols, BLOCK)):
                for i, j in T.Parallel(1, BLOCK):
                    k = chunk * BLOCK + j
                    sums[i, j] += T.if_then_else(k < cols, T.cast(x[row, k], T.float32), 0)
            T.reduce_sum(sums, mean, dim=1)
            mean[0] = mean[0] / T.cast(cols, T.float32)
            T.clear(sums)
            for chunk in T.serial(T.ceildiv(cols, BLOCK)):
                for i, j in T.Parallel(1, BLOCK):
                    k = chunk * BLOCK + j
                    values[i, j] = T.if_then_else(k < cols, T.cast(x[row, k], T.float32) - mean[i], 0)
                for i, j in T.Parallel(1, BLOCK):
                    sums[i, j] += values[i, j] * values[i, j]
            T.reduce_sum(sums, scale, dim=1)
            scale[0] = T.rsqrt(scale[0] / T.cast(cols, T.float32) + eps)
            for chunk in T.serial(T.ceildiv(cols, BLOCK)):
                for i, j in T.Parallel(1, BLOCK):
                    k = chunk * BLOCK + j
                    if k < cols:
                        normalized = (T.cast(x[row, k], T.float32) - mean[i]) * scale[i]
                        y[row, k] = T.cast(
                            normalized * T.cast(weight[k], T.float32) + T.cast(bias[k], T.float32), dtype
                        )

    return layernorm_long_row


def run(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5,
    *, ROWS: int, BLOCK: int, threads: int,
) -> torch.Tensor:  # fmt: skip
    """Return the layer normalization of x [1, rows, K] over its last axis with weight [K] and bias [K], like x."""
    cols = weight.numel()
    y = torch.empty_like(x)
    vec = vector_width(cols, x.element_size())
    if cols <= BLOCK:
        rows_kernel(x.dtype, ROWS, BLOCK, vec, threads)(x.view(-1, cols), weight, bias, y.view(-1, cols), eps)
    else:
        long_row_kernel(x.dtype, BLOCK, vec, threads)(x.view(-1, cols), weight, bias, y.view(-1, cols), eps)
    return y


def default(case: Case) -> Config:
    # An fp32 row and its parameters take twice the registers of a 16-bit one, so that more threads share it.
    return row_default(case["rows"], case["K"], case.dtype_size, 24 if case.dtype_size == 4 else 48)


def space(case: Case) -> list[Config]:
    return row_space(case["rows"], case["K"], case.dtype_size)


KERNEL = Kernel(run=run, default=default, space=space)
