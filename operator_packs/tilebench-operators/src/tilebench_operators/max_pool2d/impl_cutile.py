"""2-D max pooling in cuTile: a lane walks down the columns of one 16-byte load, which are all it reads of a row.

With 3×3 windows at stride 2, VEC columns end VEC / 2 windows, and only the column to the left is loaded beside them, from
L1. Going down, the lower row of one window is the upper one of the next and stays in registers. A row or column that lies
outside is replaced by one of the same window, which a maximum doesn't mind: so no load needs a mask, and all rows of a
lane are on their way together. Offsets that are multiples of VEC in the code's own arithmetic become 16-byte loads.
Other windows, and rows that are no whole number of loads (edge cases only), take one strided load per tap.
"""

import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel


def column(tile, i, LANES):
    """Column i of every lane: [LANES, N] -> [LANES, 1]."""
    return ct.extract(tile, (0, i), (LANES, 1))


def pooled(tall, left, LANES, VEC):
    """Maxima of three neighbouring columns, two apart: tall [LANES, VEC] and the column left of it [LANES, 1] -> [LANES, VEC / 2]."""
    first = ct.maximum(ct.maximum(left, column(tall, 0, LANES)), column(tall, 1, LANES))
    second = ct.maximum(ct.maximum(column(tall, 1, LANES), column(tall, 2, LANES)), column(tall, 3, LANES))
    result = ct.cat((first, second), 1)
    if VEC == 8:
        third = ct.maximum(ct.maximum(column(tall, 3, LANES), column(tall, 4, LANES)), column(tall, 5, LANES))
        fourth = ct.maximum(ct.maximum(column(tall, 5, LANES), column(tall, 6, LANES)), column(tall, 7, LANES))
        result = ct.cat((result, ct.cat((third, fourth), 1)), 1)
    return result


@ct.kernel
def strip_kernel(
    x, out, lanes, H, loads, H_out, strips, ROWS: ct.Constant[int], VEC: ct.Constant[int], LANES: ct.Constant[int]
):
    """One block, LANES strips of ROWS rows of VEC / 2 results; x [planes·H·loads·VEC], out [planes·H_out·loads·VEC / 2], both
    below 2^31 elements; 3×3 windows, stride 2, padding 1. The strips, `lanes` in all, are counted along a row first."""
    number = ct.bid(0) * LANES + ct.arange(LANES, dtype=ct.int32)
    lane = ct.minimum(number, lanes - 1)
    strip, load = lane // loads, lane % loads
    plane, first = strip // strips, strip % strips * ROWS
    source, target = x.get_raw_memory(), out.get_raw_memory()
    vector, half = ct.arange(VEC, dtype=ct.int32)[None, :], ct.arange(VEC // 2, dtype=ct.int32)[None, :]
    beside = ct.where(load > 0, -1, 0)

    # Input row 2·first - 1 and those below it; ahead of every store, which the compiler does not move loads across.
    wides, lefts = (), ()
    for r in ct.static_iter(range(2 * ROWS + 1)):
        row = ct.maximum(ct.minimum(2 * first + (r - 1), H - 1), 0)
        at = ((plane * H + row) * loads + load) * VEC
        wides = (*wides, source.load_offset(at[:, None] + vector))
        lefts = (*lefts, source.load_offset(at + beside)[:, None])
    for r in ct.static_iter(range(ROWS)):
        tall = ct.maximum(ct.maximum(wides[2 * r], wides[2 * r + 1]), wides[2 * r + 2])
        left = ct.maximum(ct.maximum(lefts[2 * r], lefts[2 * r + 1]), lefts[2 * r + 2])
        at = ((plane * H_out + first + r) * loads + load) * (VEC // 2)
        held = (number < lanes) & (first + r < H_out)
        target.store_offset(at[:, None] + half, pooled(tall, left, LANES, VEC), mask=held[:, None])


@ct.kernel
def window_kernel(x, out, H, W, H_out, W_out, stride, padding, SIZE: ct.Constant[int], BLOCK: ct.Constant[int]):
    """One block, BLOCK results of any window; x [planes·H·W], out [planes·H_out·W_out], both below 2^31 elements."""
    index = ct.bid(0) * BLOCK + ct.arange(BLOCK, dtype=ct.int32)
    held = index < out.shape[0]
    plane = index // (H_out * W_out)
    top = index // W_out % H_out * stride - padding
    left = index % W_out * stride - padding
    result = ct.full((BLOCK,), -math.inf, x.dtype)
    for tap in range(SIZE * SIZE):
        row, col = top + tap // SIZE, left + tap % SIZE
        inside = held & (row >= 0) & (row < H) & (col >= 0) & (col < W)
        source = (plane * H + row) * W + col
        value = ct.gather(x, (source,), mask=inside, padding_value=-math.inf, check_bounds=False)
        result = ct.maximum(result, value)
    ct.scatter(out, (index,), result, mask=held, check_bounds=False)


def run(
    input: torch.Tensor, N: int, C: int, H: int, W: int, kernel_size: int, stride: int, padding: int, *,
    ROWS: int, LANES: int,
) -> torch.Tensor:  # fmt: skip
    """Return the pooled images [N·C·H_out·W_out] of input [N·C·H·W], both flat NCHW."""
    H_out, W_out = ((extent + 2 * padding - kernel_size) // stride + 1 for extent in (H, W))
    out = torch.empty(N * C * H_out * W_out, dtype=input.dtype, device=input.device)
    stream = torch.cuda.current_stream()
    vec = 16 // input.element_size()
    if (kernel_size, stride, padding) == (3, 2, 1) and W % vec == 0 and input.data_ptr() % 16 == 0:
        strips, loads = ct.cdiv(H_out, ROWS), W // vec
        lanes = N * C * strips * loads
        arguments = (input, out, lanes, H, loads, H_out, strips, ROWS, vec, LANES)
        ct.launch(stream, (ct.cdiv(lanes, LANES),), strip_kernel, arguments)
    else:
        grid = (ct.cdiv(out.numel(), 512),)
        ct.launch(stream, grid, window_kernel, (input, out, H, W, H_out, W_out, stride, padding, kernel_size, 512))
    return out


def default(case: Case) -> Config:
    # Longer strips read fewer rows twice, but leave fewer threads.
    return {"ROWS": 1 if case["H"] <= 96 else 2 if case["H"] <= 256 else 4, "LANES": 128}


def space(case: Case) -> list[Config]:
    return [{"ROWS": rows, "LANES": lanes} for rows in (1, 2, 3, 4, 8) for lanes in (128, 256)]


KERNEL = Kernel(run=run, default=default, space=space)
