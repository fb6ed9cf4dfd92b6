"""2-D max pooling in cuTile: wide loads of four neighbouring columns, windows put together in registers.

With 3×3 windows at stride 2, result row r is the maximum of the rows 2r-1, 2r and 2r+1. Even and odd rows are two views
of the input, so a tile is PLANES pieces of one row of either. A block walks down: the lower row of one window is the
upper one of the next. Then four columns 4i..4i+3 end two windows: 4i-1..4i+1 and 4i+1..4i+3, and only column 4i-1 is
loaded beside them. A row or column that lies outside is replaced by one of the same window: a maximum doesn't mind.
Other windows (edge cases only) take one strided load per tap.
"""

import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

NEG_INF = ct.PaddingMode.NEG_INF


def column(quads, i, PLANES, LANES):
    """Column i of every quad: [PLANES, LANES, 4] -> [PLANES, LANES, 1]."""
    return ct.extract(quads, (0, 0, i), (PLANES, LANES, 1))


@ct.kernel
def quad_kernel(even, odd, out, PLANES: ct.Constant[int], ROWS: ct.Constant[int], LANES: ct.Constant[int]):
    """One block, ROWS rows of 2·LANES results of PLANES planes; even [planes, H_out, W] and odd [planes, ⌊H / 2⌋, W]
    are the input's rows, out [planes, H_out, W_out]; 3×3 windows, stride 2, padding 1, H > 1."""
    i, j, p = ct.bid(0), ct.bid(1), ct.bid(2)
    width = even.shape[2]
    tile = (PLANES, 1, 4 * LANES)
    planes = ct.minimum(p * PLANES + ct.arange(PLANES, dtype=ct.int32), even.shape[0] - 1)[:, None]
    quad = j * (4 * LANES) + 4 * ct.arange(LANES, dtype=ct.int32)
    beside = ct.minimum(ct.maximum(quad - 1, 0), width - 1)[None, :]
    first = i * ROWS
    above = ct.maximum(first - 1, 0)
    upper = ct.load(odd, (p, above, j), tile, padding_mode=NEG_INF, allow_tma=False)
    upper_beside = ct.gather(odd, (planes, above, beside), check_bounds=False)
    for row in range(first, ct.minimum(first + ROWS, out.shape[1])):
        below = ct.minimum(row, odd.shape[1] - 1)
        middle = ct.load(even, (p, row, j), tile, padding_mode=NEG_INF, allow_tma=False)
        lower = ct.load(odd, (p, below, j), tile, padding_mode=NEG_INF, allow_tma=False)
        middle_beside = ct.gather(even, (planes, row, beside), check_bounds=False)
        lower_beside = ct.gather(odd, (planes, below, beside), check_bounds=False)
        quads = ct.maximum(ct.maximum(upper, middle), lower).reshape((PLANES, LANES, 4))
        before = ct.maximum(ct.maximum(upper_beside, middle_beside), lower_beside).reshape((PLANES, LANES, 1))
        c0, c1 = column(quads, 0, PLANES, LANES), column(quads, 1, PLANES, LANES)
        c2, c3 = column(quads, 2, PLANES, LANES), column(quads, 3, PLANES, LANES)
        pair = ct.cat((ct.maximum(ct.maximum(before, c0), c1), ct.maximum(ct.maximum(c1, c2), c3)), 2)
        ct.store(out, (p, row, j), pair.reshape((PLANES, 1, 2 * LANES)), allow_tma=False)
        upper, upper_beside = lower, lower_beside


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
    PLANES: int, ROWS: int, LANES: int,
) -> torch.Tensor:  # fmt: skip
    """Return the pooled images [N·C·H_out·W_out] of input [N·C·H·W], both flat NCHW."""
    H_out, W_out = ((extent + 2 * padding - kernel_size) // stride + 1 for extent in (H, W))
    out = torch.empty(N * C * H_out * W_out, dtype=input.dtype, device=input.device)
    stream = torch.cuda.current_stream()
    if (kernel_size, stride, padding) == (3, 2, 1) and H > 1:
        x = input.view(N * C, H, W)
        arrays = (x[:, 0::2], x[:, 1::2], out.view(N * C, H_out, W_out))
        grid = (ct.cdiv(H_out, ROWS), ct.cdiv(W, 4 * LANES), ct.cdiv(N * C, PLANES))
        ct.launch(stream, grid, quad_kernel, (*arrays, PLANES, ROWS, LANES))
    else:
        grid = (ct.cdiv(out.numel(), 512),)
        ct.launch(stream, grid, window_kernel, (input, out, H, W, H_out, W_out, stride, padding, kernel_size, 512))
    return out


def default(case: Case) -> Config:
    # The longest run of a row that wastes at most a third of its lanes: short runs are loaded far below full speed.
    # Then planes until a thread holds two quads.
    quads = ct.cdiv(case["W"] or case["H"], 4)
    lanes = next((lanes for lanes in (32, 16) if ct.cdiv(quads, lanes) * lanes * 3 <= quads * 4), 8)
    return {"PLANES": 256 // lanes, "ROWS": 1 if case["H"] <= 128 else 4, "LANES": lanes}


def space(case: Case) -> list[Config]:
    return [
        {"PLANES": planes, "ROWS": rows, "LANES": lanes}
        for lanes in (8, 16, 32, 64)
        for planes in (4, 8, 16, 32)
        for rows in (1, 4, 8)
        if 128 <= planes * lanes <= 512
    ]


KERNEL = Kernel(run=run, default=default, space=space)
