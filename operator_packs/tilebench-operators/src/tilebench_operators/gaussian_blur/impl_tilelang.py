"""7×7 blur in TileLang: a thread walks down a strip of four columns with seven output rows open in registers.

Every input row is loaded once and added, seven times weighted, to the seven output rows that it touches; then the oldest
one is complete and stored. Three loads of four columns give a thread the ten columns that it needs, which makes 3/4 of a
load per pixel instead of 49. All 49 weights stay in registers, and the open rows are a ring: a round of seven rows is
unrolled, so that their places in it are constants and nothing moves.
The fp32 units bound it. Other kernel sizes (edge cases only) take one load per tap.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

LANE = 4  # columns of a thread


@T.macro
def load_quad(x, pixels, first: int, row, quad, rows, cols, wide: bool):
    """pixels[first : first + 4]: four columns of x [rows, cols], the `quad`-th; zero outside. Wide: x is split into quads."""
    raw = T.alloc_local((LANE,), x.dtype)
    for v in T.unroll(LANE):
        pixels[first + v] = 0
    if row >= 0 and row < rows and quad >= 0 and quad * LANE < cols:
        if wide:
            for v in T.vectorized(LANE):
                raw[v] = x[row, quad, v]
            for v in T.unroll(LANE):
                pixels[first + v] = T.cast(raw[v], T.float32)
        else:
            for v in T.unroll(LANE):
                if quad * LANE + v < cols:
                    pixels[first + v] = T.cast(x[row, quad * LANE + v], T.float32)


@tilelang.jit
def strip_kernel(dtype: torch.dtype, ROUNDS: int, wide: bool, threads: int):
    """One thread, 7 · ROUNDS - 6 rows of four columns; x and out [rows, cols], weight [49].

    Wide: cols is a multiple of four, and the last axis is split into quads, so that the compiler knows that they are aligned.
    """
    rows, width = T.dynamic("rows, width")
    ROWS = 7 * ROUNDS - 6
    shape = (rows, width, LANE) if wide else (rows, width)

    @T.prim_func
    def blur_strips(
        x: T.Tensor(shape, dtype),
        weight: T.Tensor((49,), dtype),
        out: T.Tensor(shape, dtype),
        cols: T.int32,
        quads: T.int32,
    ):
        with T.Kernel(T.ceildiv(T.ceildiv(rows, ROWS) * quads, threads), threads=threads) as block:
            T.assume(quads > 0)
            weights = T.alloc_local((49,), T.float32)
            sums = T.alloc_local((7 * LANE,), T.float32)
            pixels = T.alloc_local((3 * LANE,), T.float32)
            result = T.alloc_local((LANE,), dtype)
            at = T.alloc_local((2,), T.int32)  # the strip's first row, the thread's quad
            at[0] = (block * threads + T.get_thread_binding()) // quads * ROWS
            at[1] = (block * threads + T.get_thread_binding()) % quads
            for tap in T.unroll(49):
                weights[tap] = T.cast(weight[tap], T.float32)
            if at[0] < rows:
                for turn in T.serial(ROUNDS):
                    for u in T.unroll(7):
                        # Input row 7 · turn + u of the strip, counted from three above its first output row.
                        row = at[0] - 3 + turn * 7 + u
                        for g in T.unroll(3):
                            load_quad(x, pixels, g * LANE, row, at[1] + g - 1, rows, cols, wide)
                        for v in T.unroll(LANE):
                            sums[u * LANE + v] = 0  # the output row that opens here takes the place of a stored one
                        for k in T.unroll(7):
                            for tap in T.unroll(7):
                                for v in T.unroll(LANE):
                                    sums[(u + 7 - k) % 7 * LANE + v] += weights[k * 7 + tap] * pixels[1 + tap + v]
                        # The row three above this one is complete.
                        for v in T.unroll(LANE):
                            result[v] = T.cast(sums[(u + 1) % 7 * LANE + v], dtype)
                        if turn * 7 + u >= 6 and row - 3 < rows:
                            if wide:
                                for v in T.vectorized(LANE):
                                    out[row - 3, at[1], v] = result[v]
                            else:
                                for v in T.unroll(LANE):
                                    if at[1] * LANE + v < cols:
                                        out[row - 3, at[1] * LANE + v] = result[v]

    return blur_strips


@tilelang.jit
def tap_kernel(dtype: torch.dtype, KROWS: int, KCOLS: int, threads: int):
    """Any kernel: one thread, one pixel; x and out [rows, cols], weight [KROWS · KCOLS]."""
    rows, cols = T.dynamic("rows, cols")

    @T.prim_func
    def blur_taps(
        x: T.Tensor((rows, cols), dtype), weight: T.Tensor((KROWS * KCOLS,), dtype), out: T.Tensor((rows, cols), dtype)
    ):
        with T.Kernel(T.ceildiv(cols, threads), rows, threads=threads) as (block, row):
            column = block * threads + T.get_thread_binding()
            total = T.alloc_var(T.float32, init=0)
            if column < cols:
                for i, j in T.grid(KROWS, KCOLS):
                    y = row + i - KROWS // 2
                    z = column + j - KCOLS // 2
                    if y >= 0 and y < rows and z >= 0 and z < cols:
                        total += T.cast(x[y, z], T.float32) * T.cast(weight[i * KCOLS + j], T.float32)
                out[row, column] = T.cast(total, dtype)

    return blur_taps


def run(
    input: torch.Tensor,
    kernel: torch.Tensor,
    rows: int,
    cols: int,
    krows: int,
    kcols: int,
    *,
    ROUNDS: int,
    threads: int,
) -> torch.Tensor:
    """Return the blurred image [rows·cols] of input [rows·cols] and kernel [krows·kcols], all flat."""
    out = torch.empty_like(input)
    if (krows, kcols) == (7, 7):
        wide = cols % LANE == 0
        shape = (rows, cols // LANE, LANE) if wide else (rows, cols)
        strip_kernel(input.dtype, ROUNDS, wide, threads)(
            input.view(shape), kernel, out.view(shape), cols, -(-cols // LANE)
        )
    else:
        tap_kernel(input.dtype, krows, kcols, 128)(input.view(rows, cols), kernel, out.view(rows, cols))
    return out


def default(case: Case) -> Config:
    # A strip opens with six rows that it doesn't store, so it should be long; and there should be some sixteen warps per
    # multiprocessor.
    rows, cols = case["rows"], case["cols"] or case["rows"]
    wanted = rows * -(-cols // (32 * LANE)) // (132 * 16)
    return {"ROUNDS": max(2, min(16, (wanted + 6) // 7)), "threads": 64}


def space(case: Case) -> list[Config]:
    return [
        {"ROUNDS": rounds, "threads": threads} for rounds in (2, 3, 4, 6, 8, 12, 16, 24) for threads in (32, 64, 128)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
