"""Index of the maximum over the last axis in TileLang: one block takes a row, and each lane keeps its best value.

A thread loads 16 bytes at a time, and each place of these has a best value and its column of its own. A place meets its
columns in ascending order and changes its mind for strictly larger values only, so it holds its lowest best column; among
places with the same best value the lowest column wins. A thread loads up to four times before it compares: two warps per
row then keep the memory busy, and all rows of a large batch are resident at once. Columns are int32 all along.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tilelang_once import PRELUDE, load_once
from tilebench_operators._tilelang_rows import vector_width

MIN_THREADS = 132 * 960  # most of what a large GPU holds


@tilelang.jit
def argmax_kernel(dtype: torch.dtype, LOADS: int, VEC: int, threads: int):
    """One block, one row in chunks of LOADS · threads · VEC columns; VEC divides cols.

    Beyond a row's end its last values come again, as if in higher columns, so they win nothing.
    """
    rows, cols = T.dynamic("rows"), T.dynamic("cols")
    CHUNK = LOADS * threads * VEC
    WARPS = threads // 32

    @T.prim_func
    def argmax_row(x: T.Tensor((rows, cols), dtype), y: T.Tensor((rows,), T.int64)):
        with T.Kernel(rows, threads=threads, prelude=PRELUDE) as row:
            T.assume(cols % VEC == 0)  # so that every row starts at a multiple of VEC, and loads are VEC wide
            values = T.alloc_local((LOADS * VEC,), dtype)
            best = T.alloc_local((VEC,), T.float32)
            columns = T.alloc_local((VEC,), T.int32)  # less the place
            maximum = T.alloc_local((1,), T.float32)
            lowest = T.alloc_local((1,), T.int32)
            maxima = T.alloc_shared((WARPS,), T.float32)
            lowests = T.alloc_shared((WARPS,), T.int32)
            tid = T.get_thread_binding()
            for v in T.unroll(VEC):
                best[v] = -T.infinity(T.float32)
                columns[v] = tid * VEC  # right for a row of -inf, too
            for chunk in T.serial(T.ceildiv(cols, CHUNK)):
                # All loads stand before the first comparison, so that they are in flight together.
                for u in T.unroll(LOADS):
                    k = T.min(chunk * CHUNK + (u * threads + tid) * VEC, cols - VEC)
                    load_once(values[u * VEC], x[row, k], VEC * dtype.itemsize)
                for u in T.unroll(LOADS):
                    for v in T.unroll(VEC):
                        if T.cast(values[u * VEC + v], T.float32) > best[v]:
                            best[v] = T.cast(values[u * VEC + v], T.float32)
                            columns[v] = chunk * CHUNK + (u * threads + tid) * VEC
            maximum[0] = best[0]
            for v in T.unroll(1, VEC):
                maximum[0] = T.max(maximum[0], best[v])
            maximum[0] = T.warp_reduce_max(maximum[0])
            lowest[0] = T.max_value(T.int32)
            for v in T.unroll(VEC):
                if best[v] == maximum[0]:
                    lowest[0] = T.min(lowest[0], columns[v] + v)
            lowest[0] = T.warp_reduce_min(lowest[0])
            if tid % 32 == 0:
                maxima[tid // 32] = maximum[0]
                lowests[tid // 32] = lowest[0]
            T.sync_threads()
            if tid == 0:
                for w in T.unroll(1, WARPS):
                    if maxima[w] > maximum[0] or (maxima[w] == maximum[0] and lowests[w] < lowest[0]):
                        maximum[0] = maxima[w]
                        lowest[0] = lowests[w]
                y[row] = T.cast(lowest[0], T.int64)

    return argmax_row


def run(x: torch.Tensor, dim: int, *, LOADS: int, threads: int) -> torch.Tensor:
    """Return the index of the maximum of x [M, N] over its last axis (`dim` is 1), the lowest on ties, [M] int64."""
    rows, cols = x.shape
    y = torch.empty(rows, dtype=torch.int64, device=x.device)
    argmax_kernel(x.dtype, LOADS, vector_width(cols, x.element_size()), threads)(x, y)
    return y


def default(case: Case) -> Config:
    width = 16 // case.dtype_size
    threads = 64
    while threads < 512 and threads * case["M"] < MIN_THREADS and threads * width < case["N"]:
        threads *= 2
    loads = 1
    while loads < 32 // width and loads * threads * width < case["N"]:
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
