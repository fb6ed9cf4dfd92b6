"""7×7 blur in Triton: fp16 as a matrix product, fp32 on the vector units.

fp16: eight neighbouring results of a row are seven products, one for each row of weights: of a window of 16 pixels and a
matrix [16, 8] that holds the seven weights in a band. A warp walks down a strip of 16 windows with seven output rows open:
an input row is loaded once, as the operand that tensor cores take from registers, and multiplied by all seven matrices,
which stay in registers or near. That is 2.3 times the multiplications, on units that are 16 times as fast; sums are fp32,
and memory bounds it.

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
def banded(weight_ptr, i: tl.constexpr):
    """[16, 8]: what the pixels of a window of 16 give to its eight results by row i of weight [7, 7]."""
    j = tl.arange(0, 16)[:, None] - tl.arange(0, 8)[None, :] - 1
    return tl.load(weight_ptr + i * 7 + j, mask=(j >= 0) & (j < 7), other=0)


@triton.jit
def load_pairs(pointer, held, row, end):
    """Both pairs of pixels of the quads in row `row` [4·BLOCKS] that `pointer` points to; zero outside and from row `end`.

    A product wants each pair in a register of a certain place, into which a load of one pair can put it. Four pixels loaded
    at once come into two neighbouring registers, and must be copied.
    """
    inside = held & (row.to(tl.uint32) < end.to(tl.uint32))  # without a sign, rows above the image are large
    return tl.load(pointer, mask=inside, other=0), tl.load(pointer + 1, mask=inside, other=0)


@triton.jit
def as_windows(pairs, BLOCKS: tl.constexpr):
    """Two times pairs [4·BLOCKS] -> windows [BLOCKS, 16]; only names of registers change.

    As an operand made of 32-bit values, a window leaves four neighbours to a thread, as it loads them.
    """
    pairs = tl.join(pairs[0], pairs[1]).reshape(BLOCKS, 8)
    left = (pairs & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True)
    right = (pairs >> 16).to(tl.int16).to(tl.float16, bitcast=True)
    return tl.join(left, right).reshape(BLOCKS, 16)


@triton.jit
def matrix_kernel(x_ptr, weight_ptr, out_ptr, rows, width, ROWS, BLOCKS: tl.constexpr):
    """One warp, ROWS rows of BLOCKS blocks of eight columns; out [rows, 4·width], x its size in pairs, weight [7, 7].

    Rows come in sevens, as many as are open: after so many, every sum is back under its name. ROWS + 6 should be a multiple.
    """
    block = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)[:, None]
    lane = tl.arange(0, 4 * BLOCKS)
    quad = (tl.program_id(0) * BLOCKS + lane // 4) * 2 - 1 + lane % 4
    column = tl.arange(0, 8)[None, :]
    # Four neighbouring columns are inside together, or outside.
    held = (quad >= 0) & (quad < width)
    kept = block * 2 + column // 4 < width
    w0, w1, w2, w3 = banded(weight_ptr, 0), banded(weight_ptr, 1), banded(weight_ptr, 2), banded(weight_ptr, 3)
    w4, w5, w6 = banded(weight_ptr, 4), banded(weight_ptr, 5), banded(weight_ptr, 6)
    first = tl.program_id(1) * ROWS
    stored = tl.minimum(ROWS, rows - first)
    end = tl.minimum(first + ROWS + 3, rows)
    source = x_ptr + (first - 3).to(tl.int64) * (width * 2) + quad * 2
    target = out_ptr + (first - 6).to(tl.int64) * (width * 4) + (block * 8 + column)
    zero = tl.zeros([BLOCKS, 8], tl.float32)
    a1, a2, a3, a4, a5, a6 = zero, zero, zero, zero, zero, zero
    # Seven rows are always on their way. As pairs: halves of registers would be put together, and so waited for, too early.
    coming = ()
    for i in tl.static_range(7):
        coming = coming + (load_pairs(source, held, lane * 0 + first - 3 + i, end),)  # noqa: RUF005 - Triton knows no unpacking
        source += width * 2
    for top in range(0, ROWS + 6, 7):
        later = ()
        for i in tl.static_range(7):
            x = as_windows(coming[i], BLOCKS)
            # Every open row moves up by one as it takes its product; the oldest is complete, the last just opened.
            a0 = tl.dot(x, w6, a1)
            a1 = tl.dot(x, w5, a2)
            a2 = tl.dot(x, w4, a3)
            a3 = tl.dot(x, w3, a4)
            a4 = tl.dot(x, w2, a5)
            a5 = tl.dot(x, w1, a6)
            a6 = tl.dot(x, w0, zero)
            later = later + (load_pairs(source, held, lane * 0 + first + 4 + top + i, end),)  # noqa: RUF005
            source += width * 2
            done = column * 0 + top + i - 6  # counted from the strip's first row
            mask = kept & (done.to(tl.uint32) < stored.to(tl.uint32))
            tl.store(target, a0.to(out_ptr.dtype.element_ty), mask=mask)
            target += width * 4
        coming = later


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
        # At 96 registers, twenty warps fit a multiprocessor.
        hints = {"num_warps": num_warps, "num_stages": 1, "maxnreg": 96 if LANES == 16 else None}
        matrix_kernel[grid](input.view(torch.int32), kernel, out, rows, cols // 4, ROWS, BLOCKS=LANES, **hints)
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
        # Twenty warps fit a multiprocessor; they all run at once.
        return {"ROWS": _sevens(rows, cols, 20 * 132), "LANES": 16, "num_warps": 1}
    # A strip opens with six rows that it doesn't store, so it should be long; but a lone warp leaves its scheduler idle at
    # times. A row takes 253 issue slots with four columns a lane, and as good as 440 with eight, which wait for loads less.
    _, height, lanes = min(
        ((warps + 0.5) * (_rows(rows, cols, lanes, warps) + 6) * slots, _rows(rows, cols, lanes, warps), lanes)
        for lanes, slots in ((32, 253), (64, 440))
        for warps in (1, 2, 3, 4)
    )
    return {"ROWS": height, "LANES": lanes, "num_warps": 1}


def _rows(rows: int, cols: int, lanes: int, warps: int) -> int:
    """Rows of a strip for `warps` programs of one warp to each scheduler."""
    return triton.cdiv(rows, max(1, warps * SCHEDULERS // triton.cdiv(cols, 4 * lanes)))


def _sevens(rows: int, cols: int, programs: int, blocks: int = 16) -> int:
    """Rows of a strip of `blocks` blocks of columns for at most `programs` strips: six that open it make them sevens."""
    height = triton.cdiv(rows, max(1, programs // triton.cdiv(cols, 8 * blocks)))
    return triton.cdiv(height + 6, 7) * 7 - 6


def space(case: Case) -> list[Config]:
    rows, cols = case["rows"], case["cols"] or case["rows"]
    if case.dtype == "fp16":
        return [
            {"ROWS": height, "LANES": blocks, "num_warps": 1}
            for blocks in (16, 32)
            for height in sorted(
                {_sevens(rows, cols, warps * 132, blocks) for warps in (4, 8, 12, 16, 20, 40)} | {1, 8, 15}
            )
        ]
    return [
        {"ROWS": height, "LANES": lanes, "num_warps": 1}
        for lanes in (32, 64)
        for height in sorted({_rows(rows, cols, lanes, warps) for warps in (1, 2, 3, 4, 8, 12)})
    ]


KERNEL = Kernel(run=run, default=default, space=space)
