"""One Jacobi sweep in TileLang: a thread walks down a strip of neighbouring columns, and every value is loaded once.

Every row of the strip comes from memory once, by a 16-byte load, and is the row below, the row itself and the row above in
turn. Of the left and right neighbours only the two outermost are loaded beside it, from L1. A point that lies outside is
replaced by one that doesn't, since on the border the result is not used: so no load is behind a branch, and all rows of a
thread are on their way together. Rows that are no whole number of 16 bytes go one column per thread.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

UNCHECKED = {tilelang.PassConfigKey.TL_DISABLE_SAFE_MEMORY_ACCESS: True}  # every index is in range


@tilelang.jit(pass_configs=UNCHECKED)
def sweep_kernel(dtype: torch.dtype, VEC: int, ROWS: int, threads: int):
    """One thread, ROWS rows of one load of VEC columns; x and out [rows, cols], cut into loads, so that the compiler knows
    that they are aligned. Sums are rounded in dtype, one by one."""
    all_loads = T.dynamic("all_loads")

    @T.prim_func
    def sweep(
        x: T.Tensor((all_loads, VEC), dtype), out: T.Tensor((all_loads, VEC), dtype), rows: T.int32, loads: T.int32
    ):
        with T.Kernel(T.ceildiv(T.ceildiv(rows, ROWS) * loads, threads), threads=threads) as block:
            T.assume(loads > 0)
            lines = T.alloc_local((ROWS + 2, VEC), dtype)
            befores = T.alloc_local((ROWS + 2,), dtype)
            afters = T.alloc_local((ROWS + 2,), dtype)
            beside = T.alloc_local((VEC + 2,), dtype)  # the row itself between its neighbours
            result = T.alloc_local((VEC,), dtype)
            at = T.alloc_local((6,), T.int32)
            # This thread's first row and its load; how far away the loads are that hold the neighbours, and where in them.
            at[0] = (block * threads + T.get_thread_binding()) // loads * ROWS
            at[1] = (block * threads + T.get_thread_binding()) % loads
            at[2] = T.if_then_else(at[1] > 0, 1, 0)
            at[3] = T.if_then_else(at[1] > 0, VEC - 1, 0)
            at[4] = T.if_then_else(at[1] + 1 < loads, 1, 0)
            at[5] = T.if_then_else(at[1] + 1 < loads, 0, VEC - 1)
            if at[0] < rows:
                for r in T.unroll(ROWS + 2):
                    line = T.max(T.min(at[0] + r - 1, rows - 1), 0) * loads + at[1]
                    for v in T.vectorized(VEC):
                        lines[r, v] = x[line, v]
                    if r > 0 and r <= ROWS:
                        befores[r] = x[line - at[2], at[3]]
                        afters[r] = x[line + at[4], at[5]]
                for r in T.unroll(ROWS):
                    beside[0] = befores[r + 1]
                    beside[VEC + 1] = afters[r + 1]
                    for v in T.unroll(VEC):
                        beside[v + 1] = lines[r + 1, v]
                    for v in T.unroll(VEC):
                        total = lines[r, v] + lines[r + 2, v] + beside[v] + beside[v + 2]
                        result[v] = T.if_then_else(
                            at[0] + r > 0
                            and at[0] + r + 1 < rows
                            and at[1] + v > 0
                            and (at[1] + 1 < loads or v + 1 < VEC),
                            total * T.cast(0.25, dtype),
                            lines[r + 1, v],
                        )
                    if at[0] + r < rows:
                        for v in T.vectorized(VEC):
                            out[(at[0] + r) * loads + at[1], v] = result[v]

    return sweep


def run(input: torch.Tensor, rows: int, cols: int, *, ROWS: int, threads: int) -> torch.Tensor:
    """Return the sweep of input [rows, cols] in its dtype."""
    out = torch.empty_like(input)
    width = 16 // input.element_size()
    vec = width if cols % width == 0 and input.data_ptr() % 16 == 0 else 1
    sweep_kernel(input.dtype, vec, ROWS, threads)(input.view(-1, vec), out.view(-1, vec), rows, cols // vec)
    return out


def default(case: Case) -> Config:
    # Longer strips re-read fewer rows (2 per strip) but leave fewer threads.
    return {"ROWS": 2 if case["rows"] <= 1024 else 4, "threads": 128}


def space(case: Case) -> list[Config]:
    return [{"ROWS": rows, "threads": threads} for rows in (1, 2, 3, 4, 6, 8) for threads in (64, 128, 256)]


KERNEL = Kernel(run=run, default=default, space=space)
