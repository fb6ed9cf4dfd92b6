"""One Jacobi sweep in Triton: a lane walks down the columns of one 16-byte load, which are almost all it reads of a row.

Every row of a strip is loaded once, and is the row below, the row itself and the row above in turn. Of the left and right
neighbours only the two outermost are loaded beside it, from L1. A point that lies outside is replaced by one that doesn't,
since on the border the result is not used: so no load needs a mask, and all rows of a lane are on their way together.
Rows that are no whole number of 16 bytes go one column per lane.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def beside(tile, before, after, LANES: tl.constexpr, VEC: tl.constexpr):
    """What lies left and right of every point of tile [LANES, VEC], VEC 1, 4 or 8; before and after [LANES].

    Split and join take a last axis of two. Only names of registers change.
    """
    if VEC == 1:
        left, right = before[:, None], after[:, None]
    elif VEC == 4:
        evens, odds = tl.split(tile.reshape(LANES, 2, 2))
        c0, c2 = tl.split(evens)
        c1, c3 = tl.split(odds)
        left = tl.join(tl.join(before, c1), tl.join(c0, c2)).reshape(LANES, 4)
        right = tl.join(tl.join(c1, c3), tl.join(c2, after)).reshape(LANES, 4)
    else:
        evens, odds = tl.split(tile.reshape(LANES, 4, 2))
        c04, c26 = tl.split(evens.reshape(LANES, 2, 2))
        c15, c37 = tl.split(odds.reshape(LANES, 2, 2))
        _, c4 = tl.split(c04)
        c2, c6 = tl.split(c26)
        c1, c5 = tl.split(c15)
        c3, _ = tl.split(c37)
        shifted = tl.join(tl.join(before, c3), tl.join(c1, c5)).reshape(LANES, 4)
        left = tl.join(shifted, evens).reshape(LANES, 8)
        shifted = tl.join(tl.join(c2, c6), tl.join(c4, after)).reshape(LANES, 4)
        right = tl.join(odds, shifted).reshape(LANES, 8)
    return left, right


@triton.jit
def sweep_kernel(x_ptr, out_ptr, rows, cols, lanes, ROWS: tl.constexpr, VEC: tl.constexpr, LANES: tl.constexpr):
    """One program, LANES strips of ROWS rows of VEC columns; x and out point to [rows, cols]; cols is a multiple of VEC.

    The strips, `lanes` in all, are counted along a row first.
    """
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    held = lane < lanes
    lane = tl.minimum(lane, lanes - 1)
    loads = cols // VEC
    top = lane // loads * ROWS
    first = lane % loads * VEC
    columns = tl.arange(0, VEC)[None, :]
    step_left = tl.where(first > 0, -1, 0)
    step_right = tl.where(first + VEC < cols, VEC, VEC - 1)

    # Ahead of every store, which the compiler does not move loads across.
    lines, befores, afters = (), (), ()
    for r in tl.static_range(ROWS + 2):
        row = tl.maximum(tl.minimum(top + (r - 1), rows - 1), 0)
        at = x_ptr + tl.multiple_of(row.to(tl.int64) * cols + first, VEC)
        lines = lines + (tl.load(at[:, None] + columns),)  # noqa: RUF005 - Triton knows no unpacking
        if r > 0 and r <= ROWS:
            befores = befores + (tl.load(at + step_left),)  # noqa: RUF005
            afters = afters + (tl.load(at + step_right),)  # noqa: RUF005
    point = first[:, None] + columns
    inner = (point > 0) & (point < cols - 1)
    for r in tl.static_range(ROWS):
        row = top + r
        left, right = beside(lines[r + 1], befores[r], afters[r], LANES, VEC)
        # Two narrow numbers added in fp32 and rounded give the sum of their own dtype.
        total = (lines[r].to(tl.float32) + lines[r + 2].to(tl.float32)).to(dtype).to(tl.float32)
        total = (total + left.to(tl.float32)).to(dtype).to(tl.float32)
        total = (total + right.to(tl.float32)).to(dtype).to(tl.float32)
        result = tl.where(inner & ((row > 0) & (row < rows - 1))[:, None], (0.25 * total).to(dtype), lines[r + 1])
        at = out_ptr + tl.multiple_of(row.to(tl.int64) * cols + first, VEC)
        tl.store(at[:, None] + columns, result, mask=(held & (row < rows))[:, None])


def run(input: torch.Tensor, rows: int, cols: int, *, ROWS: int, LANES: int) -> torch.Tensor:
    """Return the sweep of input [rows, cols] in its dtype."""
    out = torch.empty_like(input)
    width = 16 // input.element_size()
    vec = width if cols % width == 0 and input.data_ptr() % 16 == 0 else 1
    lanes = triton.cdiv(rows, ROWS) * (cols // vec)
    grid = (triton.cdiv(lanes, LANES),)
    sweep_kernel[grid](input, out, rows, cols, lanes, ROWS=ROWS, VEC=vec, LANES=LANES, num_warps=LANES // 32)
    return out


def default(case: Case) -> Config:
    # Longer strips re-read fewer rows (2 per strip) but leave fewer lanes.
    return {"ROWS": 2 if case["rows"] <= 1024 else 4, "LANES": 128}


def space(case: Case) -> list[Config]:
    return [{"ROWS": rows, "LANES": lanes} for rows in (1, 2, 3, 4, 6, 8) for lanes in (64, 128, 256)]


KERNEL = Kernel(run=run, default=default, space=space)
