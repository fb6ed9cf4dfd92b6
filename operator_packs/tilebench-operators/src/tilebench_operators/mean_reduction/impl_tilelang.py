"""Mean over the last axis in TileLang: one block adds up one row, every thread a few columns, and adds its threads once.

A thread loads 16 bytes at a time, up to eight times before it adds: two warps per row then keep the memory busy, and all
rows of a large batch are resident at once, so that no multiprocessor waits for a last round of blocks.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tilelang_once import PRELUDE, load_once
from tilebench_operators._tilelang_rows import vector_width

MIN_THREADS = 132 * 960  # most of what a large GPU holds


@tilelang.jit
def mean_kernel(dtype: torch.dtype, LOADS: int, VEC: int, threads: int):
    """One block, one row in chunks of LOADS · threads · VEC columns; VEC divides cols. Zeros beyond the end add nothing."""
    rows, cols = T.dynamic("rows"), T.dynamic("cols")
    CHUNK = LOADS * threads * VEC

    @T.prim_func
    def mean_row(x: T.Tensor((rows, cols), dtype), y: T.Tensor((rows,), T.float32)):
        with T.Kernel(rows, threads=threads, prelude=PRELUDE) as row:
            T.assume(cols % VEC == 0)  # so that every row starts at a multiple of VEC, and loads are VEC wide
            values = T.alloc_local((LOADS * VEC,), dtype)
            sums = T.alloc_local((VEC,), T.float32)
            total = T.alloc_local((1,), T.float32)
            partial = T.alloc_shared((threads // 32,), T.float32)
            tid = T.get_thread_binding()
            for v in T.unroll(VEC):
                sums[v] = 0
            for chunk in T.serial(T.ceildiv(cols, CHUNK)):
                # All loads stand before the first addition, so that they are in flight together.
                for u in T.unroll(LOADS):
                    k = chunk * CHUNK + (u * threads + tid) * VEC
                    if k < cols:
                        load_once(values[u * VEC], x[row, k], VEC * dtype.itemsize)
                    else:
                        for v in T.vectorized(VEC):
                            values[u * VEC + v] = T.cast(0, dtype)
                for u in T.unroll(LOADS):
                    for v in T.unroll(VEC):
                        sums[v] += T.cast(values[u * VEC + v], T.float32)
            total[0] = 0
            for v in T.unroll(VEC):
                total[0] += sums[v]
            total[0] = T.warp_reduce_sum(total[0])
            if tid % 32 == 0:
                partial[tid // 32] = total[0]
            T.sync_threads()
            if tid == 0:
                total[0] = 0
                for w in T.unroll(threads // 32):
                    total[0] += partial[w]
                y[row] = total[0] / T.cast(cols, T.float32)

    return mean_row


def run(x: torch.Tensor, dim: int, *, LOADS: int, threads: int) -> torch.Tensor:
    """Return the mean of x [M, N] over its last axis (`dim` is 1), [M] fp32."""
    rows, cols = x.shape
    y = torch.empty(rows, dtype=torch.float32, device=x.device)
    mean_kernel(x.dtype, LOADS, vector_width(cols, x.element_size()), threads)(x, y)
    return y


def default(case: Case) -> Config:
    width = 16 // case.dtype_size
    threads = 64
    while threads < 512 and threads * case["M"] < MIN_THREADS and threads * width < case["N"]:
        threads *= 2
    loads = 1
    while loads < 8 and loads * threads * width < case["N"]:
        loads *= 2
    return {"LOADS": loads, "threads": threads}


def space(case: Case) -> list[Config]:
    width = 16 // case.dtype_size
    return [
        {"LOADS": loads, "threads": threads}
        for threads in (32, 64, 128, 256, 512)
        for loads in (1, 2, 4, 8)
        if loads == 1 or loads * threads * width < 2 * case["N"]
    ]


KERNEL = Kernel(run=run, default=default, space=space)
