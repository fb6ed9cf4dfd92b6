"""One Jacobi sweep in Triton: a program walks down a strip of columns and keeps three rows in registers.

Every row of the strip comes from memory once as the row below, and serves again as the row itself and as the row above.
Only the left and the right neighbours are loaded beside it, one element off: from L1, where the row lies by then.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def sweep_kernel(x_ptr, out_ptr, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """One program, ROWS rows of BLOCK columns; x and out point to [rows, cols]."""
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.program_id(1) * ROWS
    inside = columns < cols
    inner = (columns > 0) & (columns < cols - 1)
    top = first + tl.zeros([BLOCK], tl.int32)  # as a block: the interpreter wants masks of one shape
    line = x_ptr + first.to(tl.int64) * cols + columns
    target = out_ptr + first.to(tl.int64) * cols + columns
    up = tl.load(line - cols, mask=inside & (top > 0), other=0).to(tl.float32)
    centre = tl.load(line, mask=inside & (top < rows), other=0).to(tl.float32)
    for step in tl.static_range(ROWS):
        row = top + step
        down = tl.load(line + cols, mask=inside & (row < rows - 1), other=0).to(tl.float32)
        left = tl.load(line - 1, mask=inner & (row < rows), other=0).to(tl.float32)
        right = tl.load(line + 1, mask=inner & (row < rows), other=0).to(tl.float32)
        # Two narrow numbers added in fp32 and rounded give the sum of their own dtype.
        total = (up + down).to(dtype).to(tl.float32)
        total = (total + left).to(dtype).to(tl.float32)
        total = (total + right).to(dtype).to(tl.float32)
        is_inner = inner & (row > 0) & (row < rows - 1)
        tl.store(target, tl.where(is_inner, 0.25 * total, centre).to(dtype), mask=inside & (row < rows))
        up = centre
        centre = down
        line += cols
        target += cols


def run(input: torch.Tensor, rows: int, cols: int, *, ROWS: int, BLOCK: int, num_warps: int) -> torch.Tensor:
    """Return the sweep of input [rows, cols] in its dtype."""
    out = torch.empty_like(input)
    grid = (triton.cdiv(cols, BLOCK), triton.cdiv(rows, ROWS))
    sweep_kernel[grid](input, out, rows, cols, ROWS=ROWS, BLOCK=BLOCK, num_warps=num_warps)
    return out


def default(case: Case) -> Config:
    # 16 bytes per thread and load. Longer strips re-read fewer rows (2 per strip) but leave fewer programs.
    rows = 4 if case["rows"] <= 1024 else 8
    return {"ROWS": rows, "BLOCK": 2048 // case.dtype_size, "num_warps": 4}


def space(case: Case) -> list[Config]:
    return [
        {"ROWS": rows, "BLOCK": threads * width // case.dtype_size, "num_warps": threads // 32}
        for rows in (2, 4, 8, 16)
        for threads in (64, 128, 256)
        for width in (8, 16, 32)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
