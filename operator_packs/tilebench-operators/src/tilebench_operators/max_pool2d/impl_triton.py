"""2-D max pooling in Triton: wide loads of four neighbouring columns, windows put together in registers.

With 3×3 windows at stride 2, four columns 4i..4i+3 end two windows: 4i-1..4i+1 and 4i+1..4i+3. The maximum over the three
rows comes first, on whole quads; then each quad is split into its columns, and only column 4i-1 is loaded beside it.
Every row is the last of one window and the first of the next one, and comes from L1 the second time.
Other windows (edge cases only) take one strided load per tap.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def quad_kernel(x_ptr, out_ptr, out_rows, H, W, H_out, W_out, ROWS: tl.constexpr, LANES: tl.constexpr):
    """One program, ROWS rows of 2·LANES results; x [planes, H, W], out [planes·H_out = out_rows, W_out]; 3×3, stride 2."""
    lowest = float("-inf")
    out_row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    quad = (tl.program_id(1) * LANES + tl.arange(0, LANES))[None, :] * 4
    plane = (out_row // H_out).to(tl.int64)
    centre = out_row % H_out * 2
    line = (plane * H + centre) * W
    column = quad[:, :, None] + tl.arange(0, 4)[None, None, :]
    source = x_ptr + line[:, :, None] + column
    beside = x_ptr + line + quad - 1
    inside = (out_row < out_rows)[:, :, None] & (column < W)
    inside_beside = (out_row < out_rows) & (quad > 0) & (quad <= W)
    has_upper = centre > 0
    has_lower = centre + 1 < H

    upper = tl.load(source - W, mask=inside & has_upper[:, :, None], other=lowest)
    middle = tl.load(source, mask=inside, other=lowest)
    lower = tl.load(source + W, mask=inside & has_lower[:, :, None], other=lowest)
    beside_upper = tl.load(beside - W, mask=inside_beside & has_upper, other=lowest)
    beside_middle = tl.load(beside, mask=inside_beside, other=lowest)
    beside_lower = tl.load(beside + W, mask=inside_beside & has_lower, other=lowest)
    tallest = tl.maximum(tl.maximum(upper.to(tl.float32), middle.to(tl.float32)), lower.to(tl.float32))
    before = tl.maximum(
        tl.maximum(beside_upper.to(tl.float32), beside_middle.to(tl.float32)), beside_lower.to(tl.float32)
    )

    # [.., 4] -> four [..]: split takes a last axis of two, and the quad is two by two.
    evens, odds = tl.split(tallest.reshape(ROWS, LANES, 2, 2))
    c0, c2 = tl.split(evens)
    c1, c3 = tl.split(odds)
    result = tl.join(tl.maximum(tl.maximum(before, c0), c1), tl.maximum(tl.maximum(c1, c2), c3))
    out_column = (quad // 2)[:, :, None] + tl.arange(0, 2)[None, None, :]
    tl.store(
        out_ptr + (out_row.to(tl.int64) * W_out)[:, :, None] + out_column,
        result.to(out_ptr.dtype.element_ty),
        mask=(out_row < out_rows)[:, :, None] & (out_column < W_out),
    )


@triton.jit
def window_kernel(
    x_ptr, out_ptr, results, H, W, H_out, W_out, stride, padding, SIZE: tl.constexpr, BLOCK: tl.constexpr
):
    """One program, BLOCK results of any window; x [planes, H, W], out [planes, H_out, W_out]."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    plane = index // (H_out * W_out)
    top = index // W_out % H_out * stride - padding
    left = index % W_out * stride - padding
    result = tl.full([BLOCK], float("-inf"), tl.float32)
    for tap in range(SIZE * SIZE):
        row = top + tap // SIZE
        column = left + tap % SIZE
        inside = (index < results) & (row >= 0) & (row < H) & (column >= 0) & (column < W)
        x = tl.load(x_ptr + (plane * H + row) * W + column, mask=inside, other=float("-inf"))
        result = tl.maximum(result, x.to(tl.float32))
    tl.store(out_ptr + index, result.to(out_ptr.dtype.element_ty), mask=index < results)


def run(
    input: torch.Tensor,
    N: int,
    C: int,
    H: int,
    W: int,
    kernel_size: int,
    stride: int,
    padding: int,
    *,
    ROWS: int,
    LANES: int,
    num_warps: int,
) -> torch.Tensor:
    """Return the pooled images [N·C·H_out·W_out] of input [N·C·H·W], both flat NCHW."""
    H_out, W_out = ((extent + 2 * padding - kernel_size) // stride + 1 for extent in (H, W))
    out = torch.empty(N * C * H_out * W_out, dtype=input.dtype, device=input.device)
    if (kernel_size, stride, padding) == (3, 2, 1):
        out_rows = N * C * H_out
        grid = (triton.cdiv(out_rows, ROWS), triton.cdiv(W, 4 * LANES))
        quad_kernel[grid](input, out, out_rows, H, W, H_out, W_out, ROWS=ROWS, LANES=LANES, num_warps=num_warps)
    else:
        grid = (triton.cdiv(out.numel(), 512),)
        window_kernel[grid](
            input, out, out.numel(), H, W, H_out, W_out, stride, padding, SIZE=kernel_size, BLOCK=512, num_warps=4
        )
    return out


def default(case: Case) -> Config:
    # The longest run of a row that wastes at most a third of its lanes: short runs are loaded far below full speed.
    # Then rows until a thread holds two quads.
    quads = triton.cdiv(case["W"] or case["H"], 4)
    lanes = next((lanes for lanes in (32, 16) if triton.cdiv(quads, lanes) * lanes * 3 <= quads * 4), 8)
    return {"ROWS": 256 // lanes, "LANES": lanes, "num_warps": 4}


def space(case: Case) -> list[Config]:
    return [
        {"ROWS": rows, "LANES": lanes, "num_warps": warps}
        for lanes in (8, 16, 32, 64)
        for rows in (2, 4, 8, 16, 32)
        for warps in (2, 4, 8)
        if 32 * warps <= rows * lanes <= 128 * warps
    ]


KERNEL = Kernel(run=run, default=default, space=space)
