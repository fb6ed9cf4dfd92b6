"""7×7 blur in Triton: a program walks down a strip of the image with seven output rows open in registers.

Every input row is loaded once and added, seven times weighted, to the seven output rows that it touches; then the oldest
one is complete and stored. A lane holds four neighbouring columns: three wide loads give it the ten columns that it
needs, and shifted windows are put together from registers. That makes 3/4 of a load per pixel instead of 49.
The fp32 units bound it. Other kernel sizes (edge cases only) take one load per tap.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def columns_of(quads, LANES: tl.constexpr):
    """[LANES, 4] -> its four columns [LANES], in fp32. Split takes a last axis of two, and the quad is two by two."""
    evens, odds = tl.split(quads.to(tl.float32).reshape(LANES, 2, 2))
    c0, c2 = tl.split(evens)
    c1, c3 = tl.split(odds)
    return c0, c1, c2, c3


@triton.jit
def window(c0, c1, c2, c3, LANES: tl.constexpr):
    """Four columns [LANES] -> [LANES, 4]; only names of registers change."""
    return tl.join(tl.join(c0, c2), tl.join(c1, c3)).reshape(LANES, 4)


@triton.jit
def load_quads(x_ptr, row, rows, cols, column):
    """Row `row` of x [rows, cols] at `column` [LANES, 4], zero outside."""
    inside = (column >= 0) & (column < cols) & (column * 0 + row >= 0) & (column * 0 + row < rows)
    return tl.load(x_ptr + row.to(tl.int64) * cols + column, mask=inside, other=0)


@triton.jit
def strip_kernel(x_ptr, weight_ptr, out_ptr, rows, cols, ROWS, LANES: tl.constexpr):
    """One program, ROWS rows of 4·LANES columns; x and out [rows, cols], weight [7, 7]."""
    first = tl.program_id(1) * ROWS
    column = (tl.program_id(0) * LANES + tl.arange(0, LANES))[:, None] * 4 + tl.arange(0, 4)[None, :]
    a0 = tl.zeros([LANES, 4], tl.float32)
    a1, a2, a3, a4, a5, a6 = a0, a0, a0, a0, a0, a0
    weights = ()
    for tap in tl.static_range(49):
        weights = weights + (tl.load(weight_ptr + tap).to(tl.float32),)  # noqa: RUF005 - Triton knows no unpacking
    row = first - 3
    # The next row is on its way while this one is added.
    before = load_quads(x_ptr, row, rows, cols, column - 4)
    here = load_quads(x_ptr, row, rows, cols, column)
    after = load_quads(x_ptr, row, rows, cols, column + 4)
    for _ in range(ROWS + 6):
        _, p1, p2, p3 = columns_of(before, LANES)
        p4, p5, p6, p7 = columns_of(here, LANES)
        p8, p9, p10, _ = columns_of(after, LANES)
        before = load_quads(x_ptr, row + 1, rows, cols, column - 4)
        here = load_quads(x_ptr, row + 1, rows, cols, column)
        after = load_quads(x_ptr, row + 1, rows, cols, column + 4)
        # a0 is the row three above this one, so that this row is the last of its window; a6 is just opened.
        a0, a1, a2, a3, a4, a5, a6 = a1, a2, a3, a4, a5, a6, tl.zeros([LANES, 4], tl.float32)
        pixels = (p1, p2, p3, p4, p5, p6, p7, p8, p9, p10)
        for tap in tl.static_range(7):
            x = window(pixels[tap], pixels[tap + 1], pixels[tap + 2], pixels[tap + 3], LANES)
            a0 += weights[42 + tap] * x
            a1 += weights[35 + tap] * x
            a2 += weights[28 + tap] * x
            a3 += weights[21 + tap] * x
            a4 += weights[14 + tap] * x
            a5 += weights[7 + tap] * x
            a6 += weights[tap] * x
        done = column * 0 + row - 3
        tl.store(
            out_ptr + (row.to(tl.int64) - 3) * cols + column,
            a0.to(out_ptr.dtype.element_ty),
            mask=(done >= first) & (done < rows) & (column < cols),
        )
        row += 1


@triton.jit
def tap_kernel(x_ptr, weight_ptr, out_ptr, rows, cols, KROWS: tl.constexpr, KCOLS: tl.constexpr, BLOCK: tl.constexpr):
    """One program, BLOCK pixels of any kernel; x and out [rows, cols], weight [KROWS, KCOLS]."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK], tl.float32)
    for tap in range(KROWS * KCOLS):
        row = index // cols + tap // KCOLS - KROWS // 2
        column = index % cols + tap % KCOLS - KCOLS // 2
        inside = (row >= 0) & (row < rows) & (column >= 0) & (column < cols)
        x = tl.load(x_ptr + row * cols + column, mask=inside, other=0).to(tl.float32)
        acc += x * tl.load(weight_ptr + tap).to(tl.float32)
    tl.store(out_ptr + index, acc.to(out_ptr.dtype.element_ty), mask=index < rows * cols)


def run(
    input: torch.Tensor,
    kernel: torch.Tensor,
    rows: int,
    cols: int,
    krows: int,
    kcols: int,
    *,
    ROWS: int,
    LANES: int,
    num_warps: int,
) -> torch.Tensor:
    """Return the blurred image [rows·cols] of input [rows·cols] and kernel [krows·kcols], all flat."""
    out = torch.empty_like(input)
    if (krows, kcols) == (7, 7):
        grid = (triton.cdiv(cols, 4 * LANES), triton.cdiv(rows, ROWS))
        strip_kernel[grid](input, kernel, out, rows, cols, ROWS, LANES=LANES, num_warps=num_warps)
    else:
        grid = (triton.cdiv(rows * cols, 512),)
        tap_kernel[grid](input, kernel, out, rows, cols, KROWS=krows, KCOLS=kcols, BLOCK=512, num_warps=4)
    return out


def default(case: Case) -> Config:
    # One warp per program: a strip opens with six rows that it doesn't store, so it should be long; and there should be
    # some sixteen warps per multiprocessor.
    rows, cols = case["rows"], case["cols"] or case["rows"]
    strips = triton.cdiv(cols, 128)
    wanted = max(4, min(128, rows * strips // (132 * 16)))
    return {"ROWS": 1 << (wanted.bit_length() - 1), "LANES": 32, "num_warps": 1}


def space(case: Case) -> list[Config]:
    return [
        {"ROWS": rows, "LANES": lanes, "num_warps": lanes // 32}
        for rows in (4, 8, 16, 32, 64, 96, 128, 160, 256)
        for lanes in (32, 64, 128)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
