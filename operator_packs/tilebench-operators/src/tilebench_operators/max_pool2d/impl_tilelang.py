"""2-D max pooling in TileLang: a thread walks down a few columns, and every value is loaded by 16-byte loads, once.

With 3×3 windows at stride 2, a thread owns the columns of one 16-byte load, which end half as many windows; only the column
to the left is loaded beside them, from L1. Going down, the lower row of one window is the upper one of the next and stays
in registers. Other windows, and rows that are no whole number of loads (edge cases only), take one load per tap.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel


@T.macro
def load_row(x, values, plane, row, load, rows, VEC: int):
    """values [1 + VEC]: one 16-byte load of a row of x [planes, rows, loads, VEC], after the value left of it; -inf outside."""
    raw = T.alloc_local((VEC,), x.dtype)
    for v in T.unroll(VEC + 1):
        values[v] = -T.infinity(T.float32)
    if row >= 0 and row < rows:
        for v in T.vectorized(VEC):
            raw[v] = x[plane, row, load, v]
        for v in T.unroll(VEC):
            values[1 + v] = T.cast(raw[v], T.float32)
        if load > 0:
            values[0] = T.cast(x[plane, row, load - 1, VEC - 1], T.float32)


@tilelang.jit
def strip_kernel(dtype: torch.dtype, ROWS: int, threads: int):
    """3×3 windows, stride 2: one thread, ROWS rows of VEC / 2 results; x [planes, H, W], out [planes, H_out, W / 2], where
    the last axis is split into loads of VEC values, so that the compiler knows that they are aligned."""
    planes, H, H_out, loads = T.dynamic("planes, H, H_out, loads")
    VEC = 16 // dtype.itemsize

    @T.prim_func
    def pool_strips(
        x: T.Tensor((planes, H, loads, VEC), dtype),
        out: T.Tensor((planes, H_out, loads, VEC // 2), dtype),
        strips: T.int32,
    ):
        with T.Kernel(T.ceildiv(planes * strips * loads, threads), threads=threads) as block:
            T.assume(loads > 0)
            T.assume(strips > 0)
            upper = T.alloc_local((VEC + 1,), T.float32)
            middle = T.alloc_local((VEC + 1,), T.float32)
            lower = T.alloc_local((VEC + 1,), T.float32)
            result = T.alloc_local((VEC // 2,), dtype)
            at = T.alloc_local((3,), T.int32)
            # Neighbouring threads take neighbouring columns; `at` is this thread's plane, first row and load.
            at[0] = (block * threads + T.get_thread_binding()) // loads // strips
            at[1] = (block * threads + T.get_thread_binding()) // loads % strips * ROWS
            at[2] = (block * threads + T.get_thread_binding()) % loads
            if at[0] < planes:
                load_row(x, upper, at[0], 2 * at[1] - 1, at[2], H, VEC)
                for r in T.unroll(ROWS):
                    if at[1] + r < H_out:
                        load_row(x, middle, at[0], 2 * (at[1] + r), at[2], H, VEC)
                        load_row(x, lower, at[0], 2 * (at[1] + r) + 1, at[2], H, VEC)
                        for v in T.unroll(VEC + 1):
                            middle[v] = T.max(T.max(upper[v], middle[v]), lower[v])
                            upper[v] = lower[v]
                        for v in T.unroll(VEC // 2):
                            result[v] = T.cast(
                                T.max(T.max(middle[2 * v], middle[2 * v + 1]), middle[2 * v + 2]), dtype
                            )  # fmt: skip
                        for v in T.vectorized(VEC // 2):
                            out[at[0], at[1] + r, at[2], v] = result[v]

    return pool_strips


@tilelang.jit
def window_kernel(dtype: torch.dtype, SIZE: int, threads: int):
    """Any window: one thread, one result; x [planes, H, W], out [planes, H_out, W_out]."""
    planes, H, W, H_out, W_out = T.dynamic("planes, H, W, H_out, W_out")

    @T.prim_func
    def pool_windows(
        x: T.Tensor((planes, H, W), dtype),
        out: T.Tensor((planes, H_out, W_out), dtype),
        stride: T.int32,
        padding: T.int32,
    ):
        with T.Kernel(T.ceildiv(planes * H_out * W_out, threads), threads=threads) as block:
            T.assume(H_out > 0)
            T.assume(W_out > 0)
            at = T.alloc_local((3,), T.int32)
            largest = T.alloc_var(T.float32, init=-T.infinity(T.float32))
            at[0] = (block * threads + T.get_thread_binding()) // W_out // H_out
            at[1] = (block * threads + T.get_thread_binding()) // W_out % H_out
            at[2] = (block * threads + T.get_thread_binding()) % W_out
            if at[0] < planes:
                for i, j in T.grid(SIZE, SIZE):
                    row = at[1] * stride + i - padding
                    column = at[2] * stride + j - padding
                    if row >= 0 and row < H and column >= 0 and column < W:
                        largest = T.max(largest, T.cast(x[at[0], row, column], T.float32))
                out[at[0], at[1], at[2]] = T.cast(largest, dtype)

    return pool_windows


def run(
    input: torch.Tensor, N: int, C: int, H: int, W: int, kernel_size: int, stride: int, padding: int, *,
    ROWS: int, threads: int,
) -> torch.Tensor:  # fmt: skip
    """Return the pooled images [N·C·H_out·W_out] of input [N·C·H·W], both flat NCHW."""
    H_out, W_out = ((extent + 2 * padding - kernel_size) // stride + 1 for extent in (H, W))
    out = torch.empty(N * C * H_out * W_out, dtype=input.dtype, device=input.device)
    planes, vec = N * C, 16 // input.element_size()
    if (kernel_size, stride, padding) == (3, 2, 1) and W % vec == 0:
        strip_kernel(input.dtype, ROWS, threads)(
            input.view(planes, H, -1, vec), out.view(planes, H_out, -1, vec // 2), -(-H_out // ROWS)
        )
    else:
        window_kernel(input.dtype, kernel_size, 256)(
            input.view(planes, H, W), out.view(planes, H_out, W_out), stride, padding
        )
    return out


def default(case: Case) -> Config:
    # Longer strips read fewer rows twice, but leave fewer threads.
    return {"ROWS": 1 if case["H"] <= 96 else 2 if case["H"] <= 256 else 4, "threads": 128}


def space(case: Case) -> list[Config]:
    return [{"ROWS": rows, "threads": threads} for rows in (1, 2, 4, 8, 16) for threads in (64, 128, 256)]


KERNEL = Kernel(run=run, default=default, space=space)
