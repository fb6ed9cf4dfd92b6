"""Softmax in TileLang: a row that fits is kept on chip and read once; a longer row is read twice (online softmax)."""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

MAX_TILE = 16384  # columns; a longer row would not stay in the registers of one block
PER_THREAD = 48  # columns in the registers of one thread: few threads mean few barriers in the reductions
LOG2E = 1.4426950408889634


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
                # The hardware's exponential has base 2; T.exp would spend more instructions on the last bit.
                values[i, j] = T.exp2((values[i, j] - maximum[i]) * LOG2E)
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


def _row_config(cols: int, threads: int) -> Config:
    """The shortest tile that holds a row; it need not be a power of two, as the number of threads must (T.reduce_*)."""
    step = 8 * threads  # one 16-byte load of fp16 per thread, two of fp32
    return {"BLOCK": -(-cols // step) * step, "threads": threads}


def default(case: Case) -> Config:
    if case["cols"] > MAX_TILE:
        return {"BLOCK": 4096, "threads": 256}
    threads = 64
    while case["cols"] > PER_THREAD * threads:
        threads *= 2
    return _row_config(case["cols"], threads)


def space(case: Case) -> list[Config]:
    if case["cols"] > MAX_TILE:
        return [{"BLOCK": block, "threads": threads} for block in (4096, 8192) for threads in (128, 256, 512)]
    useful = [t for t in (64, 128, 256, 512, 1024) if 8 * t <= max(512, case["cols"]) <= 96 * t]
    return [_row_config(case["cols"], threads) for threads in useful]


KERNEL = Kernel(run=run, default=default, space=space)
