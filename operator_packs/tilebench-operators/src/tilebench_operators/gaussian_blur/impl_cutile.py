"""7×7 blur in cuTile: a block walks down a strip of the image with seven output rows open in registers.

Every input row is added, seven times weighted, to the seven output rows that it touches; then the oldest one is complete
and stored. The seven shifted copies of a row are seven loads, all but one from L1: 7 loads per pixel instead of 49.
The fp32 units bound it. Other kernel sizes (edge cases only) take one load per tap.
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


@ct.kernel
def strip_kernel(x, weight, out, rows, cols, ROWS: ct.Constant[int], LANES: ct.Constant[int]):
    """One block, ROWS rows of LANES columns; x and out [rows·cols], weight [49]."""
    first = ct.bid(1) * ROWS
    column = ct.bid(0) * LANES + ct.arange(LANES, dtype=ct.int32)
    w0, w1, w2, w3 = weight_row(weight, 0), weight_row(weight, 1), weight_row(weight, 2), weight_row(weight, 3)
    w4, w5, w6 = weight_row(weight, 4), weight_row(weight, 5), weight_row(weight, 6)
    source, target = x.get_raw_memory(), out.get_raw_memory()
    a0 = ct.zeros((LANES,), ct.float32)
    a1, a2, a3, a4, a5, a6 = a0, a0, a0, a0, a0, a0
    for row in range(first - 3, ct.minimum(first + ROWS, rows) + 3):
        # a0 is the row three above this one, so that this row is the last of its window; a6 is just opened.
        a0, a1, a2, a3, a4, a5, a6 = a1, a2, a3, a4, a5, a6, ct.zeros((LANES,), ct.float32)
        inside = (row >= 0) & (row < rows)
        for tap in ct.static_iter(range(7)):
            shifted = column + (tap - 3)
            held = inside & (shifted >= 0) & (shifted < cols)
            t = source.load_offset(row * cols + shifted, mask=held, padding_value=0).astype(ct.float32)
            a0 += w6[tap] * t
            a1 += w5[tap] * t
            a2 += w4[tap] * t
            a3 += w3[tap] * t
            a4 += w2[tap] * t
            a5 += w1[tap] * t
            a6 += w0[tap] * t
        done = row - 3
        target.store_offset(done * cols + column, a0.astype(out.dtype), mask=(done >= first) & (column < cols))


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
    if (krows, kcols) == (7, 7):
        grid = (ct.cdiv(cols, LANES), ct.cdiv(rows, ROWS))
        ct.launch(stream, grid, strip_kernel, (input, kernel, out, rows, cols, ROWS, LANES))
    else:
        grid = (ct.cdiv(rows * cols, 512),)
        ct.launch(stream, grid, tap_kernel, (input, kernel, out, rows, cols, krows, kcols, 512))
    return out


def default(case: Case) -> Config:
    # A strip opens with six rows that it doesn't store, so it should be long; but there should be enough blocks.
    rows, cols = case["rows"], case["cols"] or case["rows"]
    strips = -(-cols // 256)
    wanted = max(4, min(128, rows * strips // (132 * 5)))
    return {"ROWS": 1 << (wanted.bit_length() - 1), "LANES": 256}


def space(case: Case) -> list[Config]:
    return [{"ROWS": rows, "LANES": lanes} for rows in (4, 8, 16, 32, 64, 128) for lanes in (128, 256, 512)]


KERNEL = Kernel(run=run, default=default, space=space)
