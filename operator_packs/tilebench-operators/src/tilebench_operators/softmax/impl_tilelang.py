"""Softmax in TileLang: a row that fits is kept on chip and read once; a longer row is read twice (online softmax)."""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

MAX_TILE = 16384  # columns; a longer row would not stay in the registers of one block


@tilelang.jit
def row_kernel(dtype: torch.dtype, BLOCK: int, VEC: int, threads: int):
    """One block, one row: BLOCK >= cols, and VEC divides cols."""
    rows, cols = T.dynamic("rows"), T.dynamic("cols")

    @T.prim_func
    def softmax_row(x: T.Tensor((rows, cols), dtype), y: T.Tensor((rows, cols), dtype)):
        with T.Kernel(rows, threads=threads) as row:
            T.assume(cols % VEC == 0)  # so that every row starts at a multiple of VEC, and loads are VEC wide
            values = T.alloc_fragment((1, BLOCK), T.float32)
            maximum = T.alloc_fragment((1,), T.float32)
            total = T.alloc_fragment((1,), T.float32)
            for i, j in T.Parallel(1, BLOCK):
                values[i, j] = T.if_then_else(j < cols, T.cast(x[row, j], T.float32), -T.infinity(T.float32))
            T.reduce_max(values, maximum, dim=1)
            for i, j in T.Parallel(1, BLOCK):
                values[i, j] = T.exp(values[i, j] - maximum[i])
            T.reduce_sum(values, total, dim=1)
            total[0] = 1 / total[0]
            for i, j in T.Parallel(1, BLOCK):
                if j < cols:
                    y[row, j] = T.cast(values[i, j] * total[i], dtype)

    return softmax_row


@tilelang.jit
def online_kernel(dtype: torch.dtype, BLOCK: int, VEC: int, threads: int):
    """One block, one row in chunks of BLOCK: running maximum and sum per lane first, then the second read."""
    rows, cols = T.dynamic("rows"), T.dynamic("cols")

    @T.prim_func
    def softmax_online(x: T.Tensor((rows, cols), dtype), y: T.Tensor((rows, cols), dtype)):
        with T.Kernel(rows, threads=threads) as row:
            T.assume(cols % VEC == 0)
            values = T.alloc_fragment((1, BLOCK), T.float32)
            maxima = T.alloc_fragment((1, BLOCK), T.float32)
            sums = T.alloc_fragment((1, BLOCK), T.float32)
            maximum = T.alloc_fragment((1,), T.float32)
            total = T.alloc_fragment((1,), T.float32)
            # Finite, so that a lane that has seen no column yet does not compute -inf - -inf.
            T.fill(maxima, T.min_value(T.float32))
            T.clear(sums)
            for chunk in T.serial(T.ceildiv(cols, BLOCK)):
                for i, j in T.Parallel(1, BLOCK):
                    values[i, j] = T.if_then_else(
                        chunk * BLOCK + j < cols, T.cast(x[row, chunk * BLOCK + j], T.float32), -T.infinity(T.float32)
                    )
                for i, j in T.Parallel(1, BLOCK):
                    larger = T.max(maxima[i, j], values[i, j])
                    sums[i, j] = sums[i, j] * T.exp(maxima[i, j] - larger) + T.exp(values[i, j] - larger)
                    maxima[i, j] = larger
            T.reduce_max(maxima, maximum, dim=1)
            for i, j in T.Parallel(1, BLOCK):
                sums[i, j] = sums[i, j] * T.exp(maxima[i, j] - maximum[i])
            T.reduce_sum(sums, total, dim=1)
            total[0] = 1 / total[0]
            for chunk in T.serial(T.ceildiv(cols, BLOCK)):
                for i, j in T.Parallel(1, BLOCK):
                    if chunk * BLOCK + j < cols:
                        y[row, chunk * BLOCK + j] = T.cast(
                            T.exp(T.cast(x[row, chunk * BLOCK + j], T.float32) - maximum[i]) * total[i], dtype
                        )

    return softmax_online


def run(x: torch.Tensor, *, BLOCK: int, threads: int) -> torch.Tensor:
    """Return the softmax of x [rows, cols] over its last axis, in x's dtype."""
    cols = x.shape[1]
    y = torch.empty_like(x)
    width = 16 // x.element_size()  # elements of a 16-byte load
    kernel = row_kernel if cols <= BLOCK else online_kernel
    kernel(x.dtype, BLOCK, width if cols % width == 0 else 1, threads)(x, y)
    return y


def default(case: Case) -> Config:
    if case["cols"] > MAX_TILE:
        return {"BLOCK": 4096, "threads": 256}
    # Tiles need not be powers of two; steps of 2048 keep both the idle lanes and the number of compilations small.
    tile = max(512, -(-case["cols"] // 2048) * 2048) if case["cols"] > 512 else 512
    return {"BLOCK": tile, "threads": min(1024, max(64, tile // 16))}


def space(case: Case) -> list[Config]:
    tile = -(-case["cols"] // 1024) * 1024
    tiles = [tile] if tile <= MAX_TILE else [2048, 4096, 8192]
    return [{"BLOCK": block, "threads": threads} for block in tiles for threads in (128, 256, 512, 1024)]


KERNEL = Kernel(run=run, default=default, space=space)
