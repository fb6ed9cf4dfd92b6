"""7×7 blur in Triton: fp16 as a matrix product, fp32 on the vector units.

fp16: a block of 8×8 results is the product of its window, 14×16 pixels in a row of a matrix, and one matrix that holds the
weights in a band. That is 5.2 times the multiplications, on units that are 16 times as fast; sums are fp32.

fp32: a program walks down a strip of the image with seven output rows open in registers. Every input row is loaded once and
added, seven times weighted, to the seven output rows that it touches; then the oldest one is complete and stored. A lane
holds four neighbouring columns, and a thread one or two lanes: three wide loads give a lane the ten columns that it needs,
and shifted windows are put together from registers. That makes 3/4 of a load per pixel instead of 49. The fp32 units bound
it. Other kernel sizes (edge cases only) take one load per tap.
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
    """One warp, ROWS rows of 4·LANES columns; x and out [rows, cols], weight [7, 7]."""
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
def banded(weight_ptr, below: tl.constexpr):
    """[128, 64]: what pixel (k / 16, k % 16) of a window's rows `below` and after gives to result (n / 8, n % 8) of its block."""
    k, n = tl.arange(0, 128)[:, None], tl.arange(0, 64)[None, :]
    i = k // 16 + below - n // 8
    j = k % 16 - n % 8 - 1
    return tl.load(weight_ptr + i * 7 + j, mask=(i >= 0) & (i < 7) & (j >= 0) & (j < 7), other=0)


@triton.jit
def matrix_kernel(x_ptr, weight_ptr, out_ptr, rows, width, STEPS, BLOCKS: tl.constexpr):
    """One program, 8·STEPS rows of BLOCKS blocks of eight columns; x and out [rows, 4·width], weight [7, 7].

    A block of 8×8 results takes a window of 14×16 pixels, that is a slab of eight rows and six rows of the next slab. Each
    slab is loaded once: it completes the results above it, and opens those that the next slab completes.
    """
    k = tl.arange(0, 128)
    n = tl.arange(0, 64)
    upper, lower = banded(weight_ptr, 0), banded(weight_ptr, 8)
    block = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    # Four neighbouring columns are inside together, or outside.
    quad = block[:, None] * 2 - 1 + (k // 4 % 4)[None, :]
    held = (quad >= 0) & (quad < width)
    cols = width * 4
    source = block[:, None] * 8 + (k // 16 * cols)[None, :] + (k % 16)[None, :] - 4
    target = block[:, None] * 8 + (n // 8 * cols)[None, :] + (n % 8)[None, :]
    kept = block[:, None] * 2 + (n // 4 % 2)[None, :] < width
    first = tl.program_id(1) * STEPS
    opened = tl.zeros([BLOCKS, 64], tl.float32)
    for step in range(STEPS + 1):
        top = (first + step) * 8 - 3  # first row of the slab
        row = (top + k // 16)[None, :]
        slab = tl.load(x_ptr + top.to(tl.int64) * cols + source, mask=held & (row >= 0) & (row < rows), other=0)
        sums = tl.dot(slab, lower, opened)
        # The last slab need not open any. More to the point, this makes Triton wait for the product here: ptxas serialises
        # products whose sums change registers while in flight, as they would at the loop's end.
        opened = tl.where(step < STEPS, tl.dot(slab, upper), 0.0)
        done = (top - 5 + n // 8)[None, :]
        tl.store(
            out_ptr + (top - 5).to(tl.int64) * cols + target,
            sums.to(out_ptr.dtype.element_ty),
            mask=kept & (done >= first * 8) & (done < rows),
        )


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
    if (krows, kcols) == (7, 7) and input.dtype == torch.float16 and cols % 4 == 0 and input.data_ptr() % 16 == 0:
        grid = (triton.cdiv(cols, 8 * LANES), triton.cdiv(rows, ROWS))
        matrix_kernel[grid](
            input, kernel, out, rows, cols // 4, ROWS // 8, BLOCKS=LANES, num_warps=num_warps, num_stages=4
        )
    elif (krows, kcols) == (7, 7):
        grid = (triton.cdiv(cols, 4 * LANES), triton.cdiv(rows, ROWS))
        strip_kernel[grid](input, kernel, out, rows, cols, ROWS, LANES=LANES, num_warps=num_warps)
    else:
        grid = (triton.cdiv(rows * cols, 512),)
        tap_kernel[grid](input, kernel, out, rows, cols, KROWS=krows, KCOLS=kcols, BLOCK=512, num_warps=4)
    return out


SCHEDULERS = 528  # of the H200: 132 multiprocessors have four each


def default(case: Case) -> Config:
    rows, cols = case["rows"], case["cols"] or case["rows"]
    if case.dtype == "fp16":
        # Two programs fit a multiprocessor beside each other; each begins with a matrix of weights, so all run at once.
        return {"ROWS": _slabs(rows, cols, 264), "LANES": 64, "num_warps": 4}
    # A strip opens with six rows that it doesn't store, so it should be long; but a lone warp leaves its scheduler idle at
    # times. A row takes 253 instructions with four columns a lane, 481 with eight.
    _, height, lanes = min(
        ((warps + 0.5) * (_rows(rows, cols, lanes, warps) + 6) * instructions, _rows(rows, cols, lanes, warps), lanes)
        for lanes, instructions in ((32, 253), (64, 481))
        for warps in (1, 2, 3, 4)
    )
    return {"ROWS": height, "LANES": lanes, "num_warps": 1}


def _rows(rows: int, cols: int, lanes: int, warps: int) -> int:
    """Rows of a strip for `warps` programs of one warp to each scheduler."""
    return triton.cdiv(rows, max(1, warps * SCHEDULERS // triton.cdiv(cols, 4 * lanes)))


def _slabs(rows: int, cols: int, programs: int) -> int:
    """Rows of a strip of 64 blocks of columns for `programs` strips in all: whole slabs of eight."""
    return 8 * triton.cdiv(rows, 8 * max(1, programs // triton.cdiv(cols, 512)))


def space(case: Case) -> list[Config]:
    rows, cols = case["rows"], case["cols"] or case["rows"]
    if case.dtype == "fp16":
        heights = {_slabs(rows, cols, programs) for programs in (132, 264, 528, 1056)}
        tiles = [(64, 4), (128, 8)]
        return [
            {"ROWS": height, "LANES": blocks, "num_warps": warps}
            for height in sorted(heights | {8, 16, 32})
            for blocks, warps in tiles
        ]
    return [
        {"ROWS": height, "LANES": lanes, "num_warps": 1}
        for lanes in (32, 64)
        for height in sorted({_rows(rows, cols, lanes, warps) for warps in (1, 2, 3, 4, 8, 12)})
    ]


KERNEL = Kernel(run=run, default=default, space=space)
