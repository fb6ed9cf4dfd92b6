"""One Jacobi sweep in Triton: wide loads, and left and right neighbours taken from registers.

A lane holds four neighbouring points, so two of their left and right neighbours out of three lie in the lane's own
registers already; only the two outermost are loaded beside them. Rows above and below are full tiles again: they come
from L1, as the tile's own rows do for its neighbours.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def rounded(x, dtype: tl.constexpr):
    """fp32 rounded to `dtype` and back: two narrow numbers added in fp32 and rounded give the sum of their own type."""
    return x.to(dtype).to(tl.float32)


@triton.jit
def sweep_kernel(x_ptr, out_ptr, rows, cols, ROWS: tl.constexpr, LANES: tl.constexpr):
    """One program, one [ROWS, 4·LANES] tile; x and out point to [rows, cols]."""
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    row = (tl.program_id(1) * ROWS + tl.arange(0, ROWS))[:, None]
    quad = (tl.program_id(0) * LANES + tl.arange(0, LANES))[None, :] * 4
    column = quad[:, :, None] + tl.arange(0, 4)[None, None, :]
    line = row.to(tl.int64) * cols
    points = line[:, :, None] + column
    inside = (row < rows)[:, :, None] & (column < cols)
    inner = inside & ((row > 0) & (row < rows - 1))[:, :, None] & (column > 0) & (column < cols - 1)

    centre = tl.load(x_ptr + points, mask=inside, other=0)
    up = tl.load(x_ptr + points - cols, mask=inside & (row > 0)[:, :, None], other=0).to(tl.float32)
    down = tl.load(x_ptr + points + cols, mask=inside & (row < rows - 1)[:, :, None], other=0).to(tl.float32)
    before = tl.load(x_ptr + line + quad - 1, mask=(row < rows) & (quad > 0) & (quad <= cols), other=0)
    after = tl.load(x_ptr + line + quad + 4, mask=(row < rows) & (quad + 4 < cols), other=0)

    # [.., 4] -> four [..]: split takes a last axis of two, and the quad is two by two.
    evens, odds = tl.split(centre.reshape(ROWS, LANES, 2, 2))
    c0, c2 = tl.split(evens)
    c1, c3 = tl.split(odds)
    left = tl.join(tl.join(before, c1), tl.join(c0, c2)).reshape(ROWS, LANES, 4).to(tl.float32)
    right = tl.join(tl.join(c1, c3), tl.join(c2, after)).reshape(ROWS, LANES, 4).to(tl.float32)

    total = rounded(rounded(rounded(up + down, dtype) + left, dtype) + right, dtype)
    tl.store(out_ptr + points, tl.where(inner, 0.25 * total, centre.to(tl.float32)).to(dtype), mask=inside)


def run(input: torch.Tensor, rows: int, cols: int, *, ROWS: int, LANES: int, num_warps: int) -> torch.Tensor:
    """Return the sweep of input [rows, cols] in its dtype."""
    out = torch.empty_like(input)
    grid = (triton.cdiv(cols, 4 * LANES), triton.cdiv(rows, ROWS))
    sweep_kernel[grid](input, out, rows, cols, ROWS=ROWS, LANES=LANES, num_warps=num_warps)
    return out


def default(case: Case) -> Config:
    # A warp reads 128 neighbouring points; a taller tile reads fewer rows twice, but leaves fewer programs.
    return {"ROWS": 4 if case["rows"] <= 1024 else 8, "LANES": 64, "num_warps": 4}


def space(case: Case) -> list[Config]:
    return [
        {"ROWS": rows, "LANES": lanes, "num_warps": warps}
        for rows in (2, 4, 8, 16)
        for lanes in (32, 64, 128)
        for warps in (2, 4, 8)
        if 32 * warps <= rows * lanes <= 512 * warps
    ]


KERNEL = Kernel(run=run, default=default, space=space)
