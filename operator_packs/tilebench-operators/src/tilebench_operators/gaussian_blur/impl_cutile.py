"""7×7 blur in cuTile: fp16 as a matrix product, fp32 on the vector units.

fp16: eight neighbouring results of a row are seven products, one for each row of weights: of a window of 16 pixels and a
matrix [16, 8] that holds the seven weights in a band. Side by side, the seven matrices are one, and one product adds an
input row to the seven output rows that it touches, which a block that walks down a strip of windows has open. That is 2.6
times the multiplications, on units that are 16 times as fast; sums are fp32, and memory bounds it.

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


def banded(weight):
    """[16, 64]: what the pixels of a window of 16, in `load_windows`' order, give to its eight results in every open row.

    Columns 8·i to 8·i + 7 belong to the i-th open row, the oldest first, for which the window is row 6 - i of weight [49].
    """
    k, n = ct.arange(16, dtype=ct.int32)[:, None], ct.arange(64, dtype=ct.int32)[None, :]
    i = 6 - n // 8
    j = k // 2 % 4 * 4 + k // 8 * 2 + k % 2 - n % 8 - 1
    return weight.get_raw_memory().load_offset(i * 7 + j, mask=(i >= 0) & (j >= 0) & (j < 7), padding_value=0)


def opened(sums, i, BLOCKS):
    """Sums of the i-th open row: [BLOCKS, 64] -> [BLOCKS, 8]."""
    return ct.extract(sums, (0, i), (BLOCKS, 8))


def moved_up(sums, BLOCKS):
    """Sums [BLOCKS, 64] without the oldest row; only names of registers change. Where a row opens, they are zero."""
    r1, r2, r3 = opened(sums, 1, BLOCKS), opened(sums, 2, BLOCKS), opened(sums, 3, BLOCKS)
    r4, r5, r6 = opened(sums, 4, BLOCKS), opened(sums, 5, BLOCKS), opened(sums, 6, BLOCKS)
    zero = ct.zeros((BLOCKS, 8), ct.float32)
    older = ct.cat((ct.cat((r1, r2), 1), ct.cat((r3, r4), 1)), 1)
    return ct.cat((older, ct.cat((ct.cat((r5, r6), 1), ct.cat((zero, zero), 1)), 1)), 1)


def load_windows(source, row, rows, width, quad, held, BLOCKS):
    """Row `row` of source [rows, width, 4] in windows [BLOCKS, 16], zero outside; `quad` [BLOCKS, 4, 1].

    A thread loads four neighbours, but as the left operand of a product it holds two pairs, eight places apart. To swap the
    middle bits of a pixel's place makes one of the other, which saves some of the shuffling.
    """
    pixel = ct.arange(4, dtype=ct.int32).reshape((1, 1, 4))
    inside = held & (row >= 0) & (row < rows)
    quads = source.load_offset((row * width + quad) * 4 + pixel, mask=inside, padding_value=0)
    return ct.permute(quads.reshape((BLOCKS, 4, 2, 2)), (0, 2, 1, 3)).reshape((BLOCKS, 16))


@ct.kernel(occupancy=4)
def matrix_kernel(x, weight, out, rows, width, ROWS, BLOCKS: ct.Constant[int]):
    """One block, ROWS rows of BLOCKS blocks of eight columns; x and out [rows·cols], weight [49]; cols = 4·width.

    Rows come in fours; ROWS + 6 should be a multiple.
    """
    bands = banded(weight)
    source, target = x.get_raw_memory(), out.get_raw_memory()
    # Four neighbouring columns are inside together, or outside, and are loaded and stored together.
    block = (ct.bid(0) * BLOCKS + ct.arange(BLOCKS, dtype=ct.int32)).reshape((BLOCKS, 1, 1))
    quad = block * 2 - 1 + ct.arange(4, dtype=ct.int32).reshape((1, 4, 1))
    held = (quad >= 0) & (quad < width)
    result_quad = block * 2 + ct.arange(2, dtype=ct.int32).reshape((1, 2, 1))
    column = ct.arange(4, dtype=ct.int32).reshape((1, 1, 4))
    first = ct.bid(1) * ROWS
    sums = ct.zeros((BLOCKS, 64), ct.float32)
    coming = (  # four rows are always on their way
        load_windows(source, first - 3, rows, width, quad, held, BLOCKS),
        load_windows(source, first - 2, rows, width, quad, held, BLOCKS),
        load_windows(source, first - 1, rows, width, quad, held, BLOCKS),
        load_windows(source, first, rows, width, quad, held, BLOCKS),
    )
    for top in range(first - 3, first + ROWS + 3, 4):
        later = ()
        for i in ct.static_iter(range(4)):
            sums = ct.mma(coming[i], bands, sums)
            later += (load_windows(source, top + 4 + i, rows, width, quad, held, BLOCKS),)
            done = top + i - 3
            kept = (result_quad < width) & (done >= first) & (done < rows)
            results = opened(sums, 0, BLOCKS).astype(out.dtype).reshape((BLOCKS, 2, 4))
            target.store_offset((done * width + result_quad) * 4 + column, results, mask=kept)
            sums = moved_up(sums, BLOCKS)
        coming = later


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
        ct.launch(stream, grid, matrix_kernel, (input, kernel, out, rows, cols // 4, ROWS, LANES))
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
        # Four blocks fit a multiprocessor; they all run at once.
        return {"ROWS": _fours(rows, cols, 4 * MULTIPROCESSORS), "LANES": 64}
    # A strip opens with six rows that it doesn't store, so it should be long; but a lone warp leaves its scheduler idle at
    # times. A row takes 253 issue slots with four columns a thread, and as good as 420 with eight, which wait for loads less;
    # registers then leave room for three blocks of four warps.
    _, height, lanes = min(
        (
            (blocks + 0.5) * (_rows(rows, cols, lanes, blocks) + 6) * slots,
            _rows(rows, cols, lanes, blocks),
            lanes,
        )
        for lanes, slots in ((128, 253), (256, 420))
        for blocks in ((1, 2, 3, 4) if lanes == 128 else (1, 2, 3))
    )
    return {"ROWS": height, "LANES": lanes}


def _rows(rows: int, cols: int, lanes: int, blocks: int) -> int:
    """Rows of a strip of `lanes` lanes for `blocks` blocks to each multiprocessor."""
    return -(-rows // max(1, blocks * MULTIPROCESSORS // -(-cols // (4 * lanes))))


def _fours(rows: int, cols: int, blocks: int) -> int:
    """Rows of a strip of 64 windows for at most `blocks` strips: with the six that open it, they come in fours."""
    height = -(-rows // max(1, blocks // -(-cols // 512)))
    return -(-(height + 6) // 4) * 4 - 6


def space(case: Case) -> list[Config]:
    rows, cols = case["rows"], case["cols"] or case["rows"]
    if case.dtype == "fp16":
        heights = {_fours(rows, cols, blocks * MULTIPROCESSORS) for blocks in (1, 2, 3, 4, 5, 6, 8, 12)}
        return [{"ROWS": height, "LANES": 64} for height in sorted(heights | {2, 6, 10})]
    return [
        {"ROWS": height, "LANES": lanes}
        for lanes in (128, 256)
        for height in sorted({_rows(rows, cols, lanes, blocks) for blocks in (1, 2, 3, 4, 8, 12)})
    ]


KERNEL = Kernel(run=run, default=default, space=space)
