"""One Jacobi sweep in TileLang: a thread walks down a strip of neighbouring columns and keeps three rows in registers.

Every row of the strip comes from memory once, by a 16-byte load, as the row below, and serves again as the row itself and as
the row above. Of the left and right neighbours only the two outermost are loaded beside it: from L1, where the row lies by
then. Rows that are no whole number of 16 bytes go one column per thread.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel


@tilelang.jit
def sweep_kernel(dtype: torch.dtype, VEC: int, ROWS: int, threads: int):
    """One thread, ROWS rows of one load of VEC columns; x and out [rows, cols], whose last axis is split into loads, so that
    the compiler knows that they are aligned."""
    rows, loads = T.dynamic("rows, loads")

    @T.prim_func
    def sweep(x: T.Tensor((rows, loads, VEC), dtype), out: T.Tensor((rows, loads, VEC), dtype)):
        with T.Kernel(T.ceildiv(T.ceildiv(rows, ROWS) * loads, threads), threads=threads) as block:
            T.assume(loads > 0)
            up = T.alloc_local((VEC,), dtype)
            down = T.alloc_local((VEC,), dtype)
            line = T.alloc_local((VEC + 2,), dtype)  # the row itself between its neighbours
            centre = T.alloc_local((VEC,), dtype)
            result = T.alloc_local((VEC,), dtype)
            total = T.alloc_local((1,), T.float32)
            at = T.alloc_local((2,), T.int32)  # this thread's first row and its load
            at[0] = (block * threads + T.get_thread_binding()) // loads * ROWS
            at[1] = (block * threads + T.get_thread_binding()) % loads
            if at[0] < rows:
                for v in T.vectorized(VEC):
                    centre[v] = x[at[0], at[1], v]
                if at[0] > 0:
                    for v in T.vectorized(VEC):
                        up[v] = x[at[0] - 1, at[1], v]
                for r in T.unroll(ROWS):
                    if at[0] + r < rows:
                        if at[0] + r + 1 < rows:
                            for v in T.vectorized(VEC):
                                down[v] = x[at[0] + r + 1, at[1], v]
                        for v in T.unroll(VEC):
                            line[v + 1] = centre[v]
                            result[v] = centre[v]
                        if at[1] > 0:
                            line[0] = x[at[0] + r, at[1] - 1, VEC - 1]
                        if at[1] + 1 < loads:
                            line[VEC + 1] = x[at[0] + r, at[1] + 1, 0]
                        if at[0] + r > 0 and at[0] + r + 1 < rows:
                            for v in T.unroll(VEC):
                                if at[1] + v > 0 and (at[1] + 1 < loads or v + 1 < VEC):
                                    # Two narrow numbers added in fp32 and rounded give the sum of their own dtype.
                                    total[0] = rounded(T.cast(up[v], T.float32) + T.cast(down[v], T.float32), dtype)
                                    total[0] = rounded(total[0] + T.cast(line[v], T.float32), dtype)
                                    total[0] = rounded(total[0] + T.cast(line[v + 2], T.float32), dtype)
                                    result[v] = T.cast(0.25 * total[0], dtype)
                        for v in T.vectorized(VEC):
                            out[at[0] + r, at[1], v] = result[v]
                        for v in T.unroll(VEC):
                            up[v] = centre[v]
                            centre[v] = down[v]

    return sweep


@T.macro
def rounded(value, dtype: torch.dtype):
    return T.cast(T.cast(value, dtype), T.float32)


def run(input: torch.Tensor, rows: int, cols: int, *, ROWS: int, threads: int) -> torch.Tensor:
    """Return the sweep of input [rows, cols] in its dtype."""
    out = torch.empty_like(input)
    width = 16 // input.element_size()
    vec = width if cols % width == 0 else 1
    sweep_kernel(input.dtype, vec, ROWS, threads)(input.view(rows, -1, vec), out.view(rows, -1, vec))
    return out


def default(case: Case) -> Config:
    # Longer strips re-read fewer rows (2 per strip) but leave fewer threads.
    return {"ROWS": 2 if case["rows"] <= 1024 else 4 if case["rows"] <= 2048 else 8, "threads": 128}


def space(case: Case) -> list[Config]:
    return [{"ROWS": rows, "threads": threads} for rows in (1, 2, 4, 8, 16) for threads in (64, 128, 256)]


KERNEL = Kernel(run=run, default=default, space=space)
