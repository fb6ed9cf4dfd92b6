"""Softmax in Triton: a row that fits is kept on chip and read once; a longer row is read twice (online softmax)."""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel

MAX_TILE = 16384  # columns; a longer row would not stay in the registers of one program


@triton.jit
def row_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    """One program, one row: x and y point to [rows, cols]; BLOCK >= cols."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < cols
    x = tl.load(x_ptr + row * cols + columns, mask=mask, other=float("-inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, axis=0))
    y = numerator / tl.sum(numerator, axis=0)
    tl.store(y_ptr + row * cols + columns, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def online_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    """One program, one row in chunks of BLOCK: running maximum and sum per lane first, then the second read."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    maxima = tl.full([BLOCK], float("-inf"), tl.float32)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        mask = start + lanes < cols
        x = tl.load(x_ptr + row * cols + start + lanes, mask=mask, other=float("-inf")).to(tl.float32)
        larger = tl.maximum(maxima, x)
        # A lane that has seen no column yet holds -inf; -inf - -inf would be NaN.
        shift = tl.where(larger == float("-inf"), 0.0, larger)
        sums = sums * tl.exp(maxima - shift) + tl.exp(x - shift)
        maxima = larger
    maximum = tl.max(maxima, axis=0)
    total = tl.sum(sums * tl.exp(maxima - maximum), axis=0)
    for start in range(0, cols, BLOCK):
        mask = start + lanes < cols
        x = tl.load(x_ptr + row * cols + start + lanes, mask=mask, other=float("-inf")).to(tl.float32)
        y = tl.exp(x - maximum) / total
        tl.store(y_ptr + row * cols + start + lanes, y.to(y_ptr.dtype.element_ty), mask=mask)


def run(x: torch.Tensor, *, BLOCK: int, num_warps: int) -> torch.Tensor:
    """Return the softmax of x [rows, cols] over its last axis, in x's dtype."""
    rows, cols = x.shape
    y = torch.empty_like(x)
    kernel = row_kernel if cols <= BLOCK else online_kernel
    kernel[(rows,)](x, y, cols, BLOCK=BLOCK, num_warps=num_warps)
    return y


def default(case: Case) -> Config:
    tile = triton.next_power_of_2(case["cols"])
    if tile > MAX_TILE:
        return {"BLOCK": 4096, "num_warps": 8}
    return {"BLOCK": tile, "num_warps": min(16, max(1, tile // 512))}


def space(case: Case) -> list[Config]:
    tile = triton.next_power_of_2(case["cols"])
    blocks = [1024, 2048, 4096] + ([tile] if 4096 < tile <= MAX_TILE else [])
    return [{"BLOCK": block, "num_warps": warps} for block in blocks for warps in (2, 4, 8, 16)]


KERNEL = Kernel(run=run, default=default, space=space)
