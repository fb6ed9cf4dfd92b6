"""7×7 blur in cuTile: fp16 as a matrix product, fp32 on the vector units.

fp16: a block of 8×8 results is the product of its window, 14×16 pixels in a row of a matrix, and one matrix that holds the
weights in a band. That is 5.2 times the multiplications, on units that are 16 times as fast; sums are fp32.

fp32: a block of threads walks down a strip of the image with seven output rows open in registers. Every input row is loaded
once and added, seven times weighted, to the seven output rows that it touches; then the oldest one is complete and stored.
A lane holds four neighbouring columns, and a thread one or two lanes: three wide loads give a lane the ten columns that it
needs, and shifted windows are put together from registers. The fp32 units bound it. Other kernel sizes (edge cases only)
take one load per tap.
"""

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel


def weight_row(weight, row):
    """The seven weights of one row of weight [49], in fp32."""
    return (
        ct.load(weight, (row * 7,), ()).astype(ct.float32), ct.load(weight, (row * 7 + 1,), ()).astype(ct.float32),
        ct.load(weight, (row * 7 + 2,), ()).astype(ct.float32), ct.load(weight, (row * 7 + 3,), ()).astype(ct.float32),
        ct.load(weight, (row * 7 + 4,), ()).astype(ct.float32), ct.load(weight, (row * 7 + 5,), ()).astype(ct.float32),
        ct.load(weight, (row * 7 + 6,), ()).astype(ct.float32),
    )  # fmt: skip


def load_quads(source, row, rows, cols, column, stride):
    """Row `row` of source [rows, cols] at `column` [LANES, VEC], zero outside; `stride` is cols."""
    held = (column >= 0) & (column < cols) & (row >= 0) & (row < rows)
    return source.load_offset(row * stride + column, mask=held, padding_value=0)


def pixel(quads, i, LANES):
    """Column i of every quad: [LANES, 4] -> [LANES, 1], in fp32."""
    return ct.extract(quads, (0, i), (LANES, 1)).astype(ct.float32)


def window(pixels, first):
    """Four neighbouring columns: four times [LANES, 1] -> [LANES, 4]; only names of registers change."""
    left = ct.cat((pixels[first], pixels[first + 1]), 1)
    return ct.cat((left, ct.cat((pixels[first + 2], pixels[first + 3]), 1)), 1)


@ct.kernel
def strip_kernel(x, weight, out, rows, width, ROWS, VEC: ct.Constant[int], LANES: ct.Constant[int]):
    """One block, ROWS rows of 4·LANES columns; x and out [rows·cols], weight [49]; cols = width · VEC, VEC 4 or 1.

    With VEC 4, offsets are multiples of four in the code's own arithmetic, and become wide loads.
    """
    cols = width * VEC
    first = ct.bid(1) * ROWS
    column = (ct.bid(0) * LANES + ct.arange(LANES, dtype=ct.int32))[:, None] * 4 + ct.arange(4, dtype=ct.int32)[None, :]
    w0, w1, w2, w3 = weight_row(weight, 0), weight_row(weight, 1), weight_row(weight, 2), weight_row(weight, 3)
    w4, w5, w6 = weight_row(weight, 4), weight_row(weight, 5), weight_row(weight, 6)
    source, target = x.get_raw_memory(), out.get_raw_memory()
    a0 = ct.zeros((LANES, 4), ct.float32)
    a1, a2, a3, a4, a5, a6 = a0, a0, a0, a0, a0, a0
    # The next row is on its way while this one is added.
    before = load_quads(source, first - 3, rows, cols, column - 4, cols)
    here = load_quads(source, first - 3, rows, cols, column, cols)
    after = load_quads(source, first - 3, rows, cols, column + 4, cols)
    for row in range(first - 3, ct.minimum(first + ROWS, rows) + 3):
        pixels = (
            pixel(before, 1, LANES), pixel(before, 2, LANES), pixel(before, 3, LANES),
            pixel(here, 0, LANES), pixel(here, 1, LANES), pixel(here, 2, LANES), pixel(here, 3, LANES),
            pixel(after, 0, LANES), pixel(after, 1, LANES), pixel(after, 2, LANES),
        )  # fmt: skip
        before = load_quads(source, row + 1, rows, cols, column - 4, cols)
        here = load_quads(source, row + 1, rows, cols, column, cols)
        after = load_quads(source, row + 1, rows, cols, column + 4, cols)
        # a0 is the row three above this one, so that this row is the last of its window; a6 is just opened.
        a0, a1, a2, a3, a4, a5, a6 = a1, a2, a3, a4, a5, a6, ct.zeros((LANES, 4), ct.float32)
        for tap in ct.static_iter(range(7)):
            t = window(pixels, tap)
            a0 += w6[tap] * t
            a1 += w5[tap] * t
            a2 += w4[tap] * t
            a3 += w3[tap] * t
            a4 += w2[tap] * t
            a5 += w1[tap] * t
            a6 += w0[tap] * t
        done = row - 3
        target.store_offset(done * cols + column, a0.astype(out.dtype), mask=(done >= first) & (column < cols))


def banded(weight, below):
    """[128, 64]: what pixel (k / 16, k % 16) of a window's rows `below` and after gives to result (n / 8, n % 8) of its block."""
    k, n = ct.arange(128, dtype=ct.int32)[:, None], ct.arange(64, dtype=ct.int32)[None, :]
    i = k // 16 + below - n // 8
    j = k % 16 - n % 8 - 1
    held = (i >= 0) & (i < 7) & (j >= 0) & (j < 7)
    return weight.get_raw_memory().load_offset(i * 7 + j, mask=held, padding_value=0)


@ct.kernel
def matrix_kernel(x, weight, out, rows, width, STEPS, BLOCKS: ct.Constant[int]):
    """One block of threads, 8·STEPS rows of BLOCKS blocks of eight columns; x and out [rows·cols], weight [49]; cols = 4·width.

    A block of 8×8 results takes a window of 14×16 pixels, that is a slab of eight rows and six rows of the next slab. Each
    slab is loaded once: it completes the results above it, and opens those that the next slab completes.
    """
    upper, lower = banded(weight, 0), banded(weight, 8)
    source, target = x.get_raw_memory(), out.get_raw_memory()
    # Quads of columns [BLOCKS, 8 rows, 4 or 2, 4] are inside together, or outside, and are loaded and stored together.
    block = (ct.bid(0) * BLOCKS + ct.arange(BLOCKS, dtype=ct.int32)).reshape((BLOCKS, 1, 1, 1))
    line = ct.arange(8, dtype=ct.int32).reshape((1, 8, 1, 1))
    column = ct.arange(4, dtype=ct.int32).reshape((1, 1, 1, 4))
    quad = block * 2 - 1 + ct.arange(4, dtype=ct.int32).reshape((1, 1, 4, 1))
    result_quad = block * 2 + ct.arange(2, dtype=ct.int32).reshape((1, 1, 2, 1))
    first = ct.bid(1) * STEPS
    opened = ct.zeros((BLOCKS, 64), ct.float32)
    for step in range(STEPS + 1):
        row = (first + step) * 8 - 3 + line
        held = (quad >= 0) & (quad < width) & (row >= 0) & (row < rows)
        slab = source.load_offset((row * width + quad) * 4 + column, mask=held, padding_value=0).reshape((BLOCKS, 128))
        sums = ct.mma(slab, lower, opened)
        opened = ct.mma(slab, upper, ct.zeros((BLOCKS, 64), ct.float32))
        done = row - 5
        kept = (result_quad < width) & (done >= first * 8) & (done < rows)
        results = sums.astype(out.dtype).reshape((BLOCKS, 8, 2, 4))
        target.store_offset((done * width + result_quad) * 4 + column, results, mask=kept)


@ct.kernel
def tap_kernel(x, weight, out, rows, cols, KROWS: ct.Constant[int], KCOLS: ct.Constant[int], BLOCK: ct.Constant[int]):
    """One block, BLOCK pixels of any kernel; x and out [rows·cols], weight [KROWS·KCOLS]."""
    index = ct.bid(0) * BLOCK + ct.arange(BLOCK, dtype=ct.int32)
    acc = ct.zeros((BLOCK,), ct.float32)
    for tap in range(KROWS * KCOLS):
        row = index // cols + tap // KCOLS - KROWS // 2
        column = index % cols + tap % KCOLS - KCOLS // 2
        inside = (row >= 0) & (row < rows) & (column >= 0) & (column < cols)
        t = ct.gather(x, (row * cols + column,), mask=inside, padding_value=0, check_bounds=False)
        acc += t.astype(ct.float32) * ct.load(weight, (tap,), ()).astype(ct.float32)
    ct.scatter(out, (index,), acc.astype(out.dtype), mask=index < rows * cols, check_bounds=False)


def run(
    input: torch.Tensor, kernel: torch.Tensor, rows: int, cols: int, krows: int, kcols: int, *, ROWS: int, LANES: int
) -> torch.Tensor:
    """Return the blurred image [rows·cols] of input [rows·cols] and kernel [krows·kcols], all flat."""
    out = torch.empty_like(input)
    stream = torch.cuda.current_stream()
    aligned = cols % 4 == 0 and input.data_ptr() % 16 == 0
    if (krows, kcols) == (7, 7) and aligned and input.dtype == torch.float16:
        grid = (ct.cdiv(cols, 8 * LANES), ct.cdiv(rows, ROWS))
        ct.launch(stream, grid, matrix_kernel, (input, kernel, out, rows, cols // 4, ROWS // 8, LANES))
    elif (krows, kcols) == (7, 7):
        grid = (ct.cdiv(cols, 4 * LANES), ct.cdiv(rows, ROWS))
        vec = 4 if aligned else 1
        ct.launch(stream, grid, strip_kernel, (input, kernel, out, rows, cols // vec, ROWS, vec, LANES))
    else:
        grid = (ct.cdiv(rows * cols, 512),)
        ct.launch(stream, grid, tap_kernel, (input, kernel, out, rows, cols, krows, kcols, 512))
    return out


MULTIPROCESSORS = 132  # of the H200


def default(case: Case) -> Config:
    rows, cols = case["rows"], case["cols"] or case["rows"]
    if case.dtype == "fp16":
        # Two blocks fit a multiprocessor beside each other; each begins with a matrix of weights, so all run at once.
        return {"ROWS": _slabs(rows, cols, 264), "LANES": 64}
    # A strip opens with six rows that it doesn't store, so it should be long; but a lone warp leaves its scheduler idle at
    # times. A row takes 253 instructions with four columns a thread, 485 with eight, where registers leave room for three
    # blocks of four warps.
    _, height, lanes = min(
        (
            (blocks + 0.5) * (_rows(rows, cols, lanes, blocks) + 6) * instructions,
            _rows(rows, cols, lanes, blocks),
            lanes,
        )
        for lanes, instructions in ((128, 253), (256, 485))
        for blocks in ((1, 2, 3, 4) if lanes == 128 else (1, 2, 3))
    )
    return {"ROWS": height, "LANES": lanes}


def _rows(rows: int, cols: int, lanes: int, blocks: int) -> int:
    """Rows of a strip of `lanes` lanes for `blocks` blocks to each multiprocessor."""
    return -(-rows // max(1, blocks * MULTIPROCESSORS // -(-cols // (4 * lanes))))


def _slabs(rows: int, cols: int, blocks: int) -> int:
    """Rows of a strip of 64 blocks of columns for `blocks` strips in all: whole slabs of eight."""
    return 8 * -(-rows // (8 * max(1, blocks // -(-cols // 512))))


def space(case: Case) -> list[Config]:
    rows, cols = case["rows"], case["cols"] or case["rows"]
    if case.dtype == "fp16":
        heights = {_slabs(rows, cols, blocks) for blocks in (132, 264, 396, 528, 1056)}
        return [{"ROWS": height, "LANES": lanes} for height in sorted(heights | {8, 16}) for lanes in (64, 128)]
    return [
        {"ROWS": height, "LANES": lanes}
        for lanes in (128, 256)
        for height in sorted({_rows(rows, cols, lanes, blocks) for blocks in (1, 2, 3, 4, 8, 12)})
    ]


KERNEL = Kernel(run=run, default=default, space=space)
