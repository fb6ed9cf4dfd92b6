"""Rowwise dequantisation in Triton: a program takes a tile of a few rows and reads one scale for each.

A thread gets eight elements: 16 bytes of the fp16 output, which is two thirds of the traffic, in one store. With
sixteen (16 bytes of the int8 input as well) the values would have to change threads between load and store.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def dequantize_kernel(x_ptr, state_ptr, y_ptr, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """One program, a tile of ROWS rows and BLOCK columns: x, y [rows, cols], state [rows]."""
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offsets = row[:, None].to(tl.int64) * cols + column[None, :]
    mask = (row < rows)[:, None] & (column < cols)[None, :]
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    scale = tl.load(state_ptr + row, mask=row < rows)
    y = scale[:, None] * x * (1.0 / 127.0)
    tl.store(y_ptr + offsets, y.to(tl.float16), mask=mask)


def run(x: torch.Tensor, state_x: torch.Tensor, *, ROWS: int, BLOCK: int, num_warps: int) -> torch.Tensor:
    """Return y [rows, cols], fp16, of x [rows, cols], int8, and state_x [rows], fp32."""
    rows, cols = x.shape
    y = torch.empty_like(x, dtype=torch.float16)
    grid = (triton.cdiv(cols, BLOCK), triton.cdiv(rows, ROWS))
    dequantize_kernel[grid](x, state_x, y, rows, cols, ROWS=ROWS, BLOCK=BLOCK, num_warps=num_warps)
    return y


def default(case: Case) -> Config:
    # 2048 elements: a thread of 256 gets eight. A chunk of 1024 columns, or the whole row if it is shorter.
    block = min(1024, max(64, triton.next_power_of_2(case["cols"])))
    return {"ROWS": 2048 // block, "BLOCK": block, "num_warps": 8}


def space(case: Case) -> list[Config]:
    return [
        {"ROWS": elements // block, "BLOCK": block, "num_warps": warps}
        for block in (256, 512, 1024)
        for elements in (1024, 2048, 4096)
        for warps in (2, 4, 8)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
