"""2-D max pooling in TileLang: a thread walks down a few columns, and every value is loaded by 16-byte loads, once.

With 3×3 windows at stride 2, a thread owns the columns of one 16-byte load, which end half as many windows; only the column
to the left is loaded beside them, from L1. Going down, the lower row of one window is the upper one of the next and stays
in registers. A row or column that lies outside is replaced by one of the same window, which a maximum doesn't mind: so no
load is behind a branch, and all rows of a thread are on their way together. Other windows, and rows that are no whole
number of loads (edge cases only), take one load per tap.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

UNCHECKED = {tilelang.PassConfigKey.TL_DISABLE_SAFE_MEMORY_ACCESS: True}  # every index is in range


@tilelang.jit(pass_configs=UNCHECKED)
def strip_kernel(dtype: torch.dtype, ROWS: int, threads: int):
    """3×3 windows, stride 2: one thread, ROWS rows of VEC / 2 results; x [planes, H, W], out [planes, H_out, W / 2], cut into
    loads of VEC and stores of VEC / 2 values, so that the compiler knows that they are aligned."""
    all_loads, all_stores = T.dynamic("all_loads, all_stores")
    VEC = 16 // dtype.itemsize

    @T.prim_func
    def pool_strips(
        x: T.Tensor((all_loads, VEC), dtype), out: T.Tensor((all_stores, VEC // 2), dtype),
        planes: T.int32, H: T.int32, H_out: T.int32, loads: T.int32, strips: T.int32,
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(planes * strips * loads, threads), threads=threads) as block:
            T.assume(loads > 0)
            T.assume(strips > 0)
            wides = T.alloc_local((2 * ROWS + 1, VEC), dtype)
            lefts = T.alloc_local((2 * ROWS + 1,), dtype)
            tallest = T.alloc_local((VEC + 1,), dtype)
            result = T.alloc_local((VEC // 2,), dtype)
            at = T.alloc_local((5,), T.int32)
            # Neighbouring threads take neighbouring columns; `at` is this thread's plane, first row and load; how many loads
            # before that the column to the left is, and where in it.
            at[0] = (block * threads + T.get_thread_binding()) // loads // strips
            at[1] = (block * threads + T.get_thread_binding()) // loads % strips * ROWS
            at[2] = (block * threads + T.get_thread_binding()) % loads
            at[3] = T.if_then_else(at[2] > 0, 1, 0)
            at[4] = T.if_then_else(at[2] > 0, VEC - 1, 0)
            if at[0] < planes:
                for r in T.unroll(2 * ROWS + 1):
                    line = (at[0] * H + T.max(T.min(2 * at[1] + r - 1, H - 1), 0)) * loads + at[2]
                    for v in T.vectorized(VEC):
                        wides[r, v] = x[line, v]
                    lefts[r] = x[line - at[3], at[4]]
                for r in T.unroll(ROWS):
                    tallest[0] = largest(lefts[2 * r], lefts[2 * r + 1], lefts[2 * r + 2])
                    for v in T.unroll(VEC):
                        tallest[v + 1] = largest(wides[2 * r, v], wides[2 * r + 1, v], wides[2 * r + 2, v])
                    for v in T.unroll(VEC // 2):
                        result[v] = largest(tallest[2 * v], tallest[2 * v + 1], tallest[2 * v + 2])
                    if at[1] + r < H_out:
                        for v in T.vectorized(VEC // 2):
                            out[(at[0] * H_out + at[1] + r) * loads + at[2], v] = result[v]

    return pool_strips


@T.macro
def largest(a, b, c):
    return T.max(T.max(a, b), c)


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
    if (kernel_size, stride, padding) == (3, 2, 1) and W % vec == 0 and input.data_ptr() % 16 == 0:
        strip_kernel(input.dtype, ROWS, threads)(
            input.view(-1, vec), out.view(-1, vec // 2), planes, H, H_out, W // vec, -(-H_out // ROWS)
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
    return [{"ROWS": rows, "threads": threads} for rows in (1, 2, 3, 4, 8) for threads in (64, 128, 256)]


KERNEL = Kernel(run=run, default=default, space=space)
