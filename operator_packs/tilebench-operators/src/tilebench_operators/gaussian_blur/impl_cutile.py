"""7×7 blur in cuTile: fp16 as a matrix product, fp32 on the vector units.

fp16: a block of 8×8 results is a product: of its windows, 14 rows of 16 pixels, and a matrix that holds the weights in bands.
In memory, windows are rows of 16 that begin at every eighth pixel, an array with overlapping strides: TMA loads them as the
tensor cores want them, by warps of their own, and no thread touches a pixel. A block of threads walks down a strip of 64
windows, eight rows at a time, that finish the results above and open those below. That is 4.6 times the multiplications, on
units that are 16 times as fast; sums are fp32, and memory bounds it. The windows begin where TMA can, so their results begin
four columns into the image: other blocks compute the first four columns and the last, tap by tap.

fp32: a block of threads walks down a strip of the image with seven output rows open in registers. Every input row is loaded
once and added, seven times weighted, to the seven output rows that it touches; then the oldest one is complete and stored.
A lane holds four neighbouring columns, and a thread one or two lanes: three wide loads give a lane the ten columns that it
needs, and shifted windows are put together from registers. The fp32 units bound it. Other kernel sizes (edge cases only)
take one load per tap.
"""

import functools

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


def load_row(source, row, rows, cols, column):
    """Quads `column` [LANES, 4] of row `row` of source [rows, cols], with those before and after."""
    return (
        load_quads(source, row, rows, cols, column - 4, cols), load_quads(source, row, rows, cols, column, cols),
        load_quads(source, row, rows, cols, column + 4, cols),
    )  # fmt: skip


def add_row(sums, quads, weights, LANES):
    """The seven open rows [LANES, 4], the oldest first, with one more opened and the row `quads` added.

    The oldest lies three rows above this one, which is the last of its window.
    """
    before, here, after = quads
    pixels = (
        pixel(before, 1, LANES), pixel(before, 2, LANES), pixel(before, 3, LANES),
        pixel(here, 0, LANES), pixel(here, 1, LANES), pixel(here, 2, LANES), pixel(here, 3, LANES),
        pixel(after, 0, LANES), pixel(after, 1, LANES), pixel(after, 2, LANES),
    )  # fmt: skip
    _, a0, a1, a2, a3, a4, a5 = sums
    a6 = ct.zeros((LANES, 4), ct.float32)
    w0, w1, w2, w3, w4, w5, w6 = weights
    for tap in ct.static_iter(range(7)):
        t = window(pixels, tap)
        a0 += w6[tap] * t
        a1 += w5[tap] * t
        a2 += w4[tap] * t
        a3 += w3[tap] * t
        a4 += w2[tap] * t
        a5 += w1[tap] * t
        a6 += w0[tap] * t
    return a0, a1, a2, a3, a4, a5, a6


@ct.kernel
def strip_kernel(
    x, weight, out, rows, width, ROWS, VEC: ct.Constant[int], LANES: ct.Constant[int], WHOLE: ct.Constant[bool]
):
    """One block, ROWS rows of 4·LANES columns; x [rows·cols], weight [49], out [rows, cols]; cols = width · VEC, VEC 4 or 1.

    With VEC 4, offsets are multiples of four in the code's own arithmetic, and become wide loads. A store to a row that is
    the loop's own index needs no barrier: cuTile sees that no two of them meet. If blocks are WHOLE, all columns of all
    blocks are inside: two bounds less to hold in registers, which loads of the next row want.
    """
    cols = width * VEC
    first = ct.bid(1) * ROWS
    column = (ct.bid(0) * LANES + ct.arange(LANES, dtype=ct.int32))[:, None] * 4 + ct.arange(4, dtype=ct.int32)[None, :]
    weights = (
        weight_row(weight, 0), weight_row(weight, 1), weight_row(weight, 2), weight_row(weight, 3), weight_row(weight, 4),
        weight_row(weight, 5), weight_row(weight, 6),
    )  # fmt: skip
    source = x.get_raw_memory()
    zero = ct.zeros((LANES, 4), ct.float32)
    sums = (zero, zero, zero, zero, zero, zero, zero)
    quads = load_row(source, first - 3, rows, cols, column)
    for row in range(first - 3, first + 3):
        coming = load_row(source, row + 1, rows, cols, column)  # on its way while this row is added
        sums = add_row(sums, quads, weights, LANES)
        quads = coming
    for done in range(first, ct.minimum(first + ROWS, rows)):
        coming = load_row(source, done + 4, rows, cols, column)
        sums = add_row(sums, quads, weights, LANES)
        quads = coming
        results = sums[0].astype(out.dtype).reshape((1, 4 * LANES))
        ct.store(out, (done, ct.bid(0)), results, check_bounds=not WHOLE, allow_tma=False)


@functools.cache
def resident(blocks: int) -> ct.kernel:
    """`strip_kernel` with no more registers than let `blocks` of it share a multiprocessor."""
    return strip_kernel.replace_hints(occupancy=blocks)


def banded(weight, row):
    """[16, 64]: what pixel k of a window gives to result (n / 8, n % 8), if its row is `row` rows below the block's window.

    Of weight [49], row - n / 8 is the row that the pixel meets; a block's window begins three rows above its results.
    """
    n, k = ct.arange(64, dtype=ct.int32)[:, None], ct.arange(16, dtype=ct.int32)[None, :]
    i = row - n // 8
    j = k - n % 8 - 1
    held = (i >= 0) & (i < 7) & (j >= 0) & (j < 7)
    return ct.transpose(weight.get_raw_memory().load_offset(i * 7 + j, mask=held, padding_value=0))


def load_windows(windows, row, block, BLOCKS):
    """[BLOCKS, 16] of row `row` of windows [rows, count, 16], zero outside."""
    return ct.load(windows, (row, block, 0), (1, BLOCKS, 16), padding_mode=ct.PaddingMode.ZERO).reshape((BLOCKS, 16))


def blur_windows(windows, weight, target, start, STEPS, first, end, width, block, BLOCKS, dtype):
    """Rows `first` to `end` of BLOCKS blocks of eight columns; windows [rows, count, 16], target [rows, width, 4].

    Eight rows of windows from 8·start on open results, and the next eight finish them.
    """
    upper = (
        banded(weight, 0), banded(weight, 1), banded(weight, 2), banded(weight, 3), banded(weight, 4), banded(weight, 5),
        banded(weight, 6), banded(weight, 7),
    )  # fmt: skip
    lower = (
        banded(weight, 8), banded(weight, 9), banded(weight, 10), banded(weight, 11), banded(weight, 12), banded(weight, 13),
    )  # fmt: skip
    # Four neighbouring columns [BLOCKS, 8 rows, 2, 4] are stored together; the last four columns belong to no window.
    line = ct.arange(8, dtype=ct.int32).reshape((1, 8, 1, 1))
    quad = (block * BLOCKS + ct.arange(BLOCKS, dtype=ct.int32)).reshape((BLOCKS, 1, 1, 1)) * 2 + 1
    quad = quad + ct.arange(2, dtype=ct.int32).reshape((1, 1, 2, 1))
    column = ct.arange(4, dtype=ct.int32).reshape((1, 1, 1, 4))
    older = ct.zeros((BLOCKS, 64), ct.float32)
    for step in range(start, start + STEPS):
        t0, t1 = load_windows(windows, step * 8, block, BLOCKS), load_windows(windows, step * 8 + 1, block, BLOCKS)
        t2, t3 = load_windows(windows, step * 8 + 2, block, BLOCKS), load_windows(windows, step * 8 + 3, block, BLOCKS)
        t4, t5 = load_windows(windows, step * 8 + 4, block, BLOCKS), load_windows(windows, step * 8 + 5, block, BLOCKS)
        t6, t7 = load_windows(windows, step * 8 + 6, block, BLOCKS), load_windows(windows, step * 8 + 7, block, BLOCKS)
        rows = (t0, t1, t2, t3, t4, t5, t6, t7)
        opened = ct.zeros((BLOCKS, 64), ct.float32)
        for i in ct.static_iter(range(8)):  # both products of a row together: its memory is free for the next load then
            if i < 6:
                older = ct.mma(rows[i], lower[i], older)
            opened = ct.mma(rows[i], upper[i], opened)
        done = step * 8 - 5 + line
        kept = (done >= first) & (done < end) & (quad < width - 1)
        results = older.astype(dtype).reshape((BLOCKS, 8, 2, 4))
        target.store_offset((done * width + quad) * 4 + column, results, mask=kept)
        older = opened


def blur_edges(source, weights, target, first, end, rows, cols, ROWS, dtype):
    """Rows `first` to `end` of the first four columns and the last; source and target [rows, cols], weights [49]."""
    c = ct.arange(8, dtype=ct.int32)[None, :]
    column = ct.where(c < 4, c, cols - 8 + c)
    for top in range(first, end, ROWS):
        row = top + ct.arange(ROWS, dtype=ct.int32)[:, None]
        acc = ct.zeros((ROWS, 8), ct.float32)
        for tap in ct.static_iter(range(49)):
            y, z = row + tap // 7 - 3, column + tap % 7 - 3
            held = (y >= 0) & (y < rows) & (z >= 0) & (z < cols)
            t = source.load_offset(y * cols + z, mask=held, padding_value=0)
            acc += t.astype(ct.float32) * weights.load_offset(tap).astype(ct.float32)
        target.store_offset(row * cols + column, acc.astype(dtype), mask=row < end)


@ct.kernel(occupancy=3)
def matrix_kernel(x, windows, weight, out, rows, width, EIGHTS, BLOCKS: ct.Constant[int]):
    """8·EIGHTS rows of BLOCKS blocks of eight columns or, first, of the edges; x and out [rows·cols], cols = 4·width.

    windows [rows, cols/8 - 1, 16] is x with overlap, weight [49]. Rows that eight rows of windows begin and the next eight
    finish lie three rows lower; the three rows above the first ones are finished without a beginning.
    """
    start = ct.bid(1) * EIGHTS
    first = ct.where(start > 0, start * 8 + 3, 0)
    end = ct.minimum((start + EIGHTS) * 8 + 3, rows)
    source, weights, target = x.get_raw_memory(), weight.get_raw_memory(), out.get_raw_memory()
    if ct.bid(0) == 0:
        blur_edges(source, weights, target, first, end, rows, width * 4, 16, out.dtype)
    else:
        block = ct.bid(0) - 1
        blur_windows(windows, weight, target, start, EIGHTS + 1, first, end, width, block, BLOCKS, out.dtype)


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
    if (krows, kcols) == (7, 7) and aligned and input.dtype == torch.float16 and cols % 8 == 0 and cols >= 16:
        count = cols // 8 - 1
        windows = input.as_strided((rows, count, 16), (cols, 8, 1))
        grid = (ct.cdiv(count, LANES) + 1, max(1, ct.cdiv(rows - 3, ROWS)))
        ct.launch(stream, grid, matrix_kernel, (input, windows, kernel, out, rows, cols // 4, ROWS // 8, LANES))
    elif (krows, kcols) == (7, 7):
        grid = (ct.cdiv(cols, 4 * LANES), ct.cdiv(rows, ROWS))
        vec, whole = 4 if aligned else 1, cols % (4 * LANES) == 0
        arguments = (input, kernel, out.view(rows, cols), rows, cols // vec, ROWS, vec, LANES, whole)
        ct.launch(stream, grid, resident(BLOCKS.get(LANES, 4)), arguments)
    else:
        grid = (ct.cdiv(rows * cols, 512),)
        ct.launch(stream, grid, tap_kernel, (input, kernel, out, rows, cols, krows, kcols, 512))
    return out


MULTIPROCESSORS = 132  # of the H200
BLOCKS = {128: 4, 256: 3}  # of so many lanes, for fp32, that share a multiprocessor's registers


def default(case: Case) -> Config:
    rows, cols = case["rows"], case["cols"] or case["rows"]
    if case.dtype == "fp16":
        # Three blocks fit a multiprocessor; they all run at once.
        return {"ROWS": _eights(rows, cols, 3 * MULTIPROCESSORS), "LANES": 64}
    # A strip opens with six rows that it doesn't store, so it should be long; but a lone warp leaves its scheduler idle at
    # times. A row takes 240 issue slots with four columns a thread, and as good as 425 with eight, which wait for loads less.
    _, height, lanes = min(
        (
            (blocks + 0.5) * (_rows(rows, cols, lanes, blocks) + 6) * slots,
            _rows(rows, cols, lanes, blocks),
            lanes,
        )
        for lanes, slots in (((128, 240), (256, 425)) if cols % 1024 == 0 else ((128, 240),))
        for blocks in range(1, BLOCKS[lanes] + 1)
    )
    return {"ROWS": height, "LANES": lanes}


def _rows(rows: int, cols: int, lanes: int, blocks: int) -> int:
    """Rows of a strip of `lanes` lanes for `blocks` blocks to each multiprocessor."""
    return -(-rows // max(1, blocks * MULTIPROCESSORS // -(-cols // (4 * lanes))))


def _eights(rows: int, cols: int, blocks: int) -> int:
    """Rows of a strip of 64 windows for at most `blocks` strips, with those of the edges; strips come in eights."""
    columns = -(-(cols // 8 - 1) // 64) + 1
    return 8 * -(-max(1, rows - 3) // (8 * max(1, blocks // columns)))


def space(case: Case) -> list[Config]:
    rows, cols = case["rows"], case["cols"] or case["rows"]
    if case.dtype == "fp16":
        heights = {_eights(rows, cols, blocks * MULTIPROCESSORS) for blocks in (1, 2, 3, 4, 6, 9, 12)}
        return [{"ROWS": height, "LANES": 64} for height in sorted(heights | {8, 16})]
    return [
        {"ROWS": height, "LANES": lanes}
        for lanes in (128, 256)
        for height in sorted({_rows(rows, cols, lanes, blocks) for blocks in (1, 2, 3, 4, 8, 12)})
    ]


KERNEL = Kernel(run=run, default=default, space=space)
