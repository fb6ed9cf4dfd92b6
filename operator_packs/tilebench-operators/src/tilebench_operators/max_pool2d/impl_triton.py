"""2-D max pooling in Triton: a lane walks down the columns of one 16-byte load, which are all it reads of a row.

With 3×3 windows at stride 2, VEC columns end VEC / 2 windows, and only the column to the left is loaded beside them, from
L1. Going down, the lower row of one window is the upper one of the next and stays in registers. A row or column that lies
outside is replaced by one of the same window, which a maximum doesn't mind: so no load needs a mask, and all rows of a
lane are on their way together. Other windows, and rows that are no whole number of loads (edge cases only), take one
strided load per tap.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def shifted(odds, before, LANES: tl.constexpr, HALF: tl.constexpr):
    """[before, odds without its last column]: [LANES, HALF], HALF 2 or 4. Split and join take a last axis of two."""
    if HALF == 2:
        o0, _ = tl.split(odds)
        result = tl.join(before, o0)
    else:
        firsts, seconds = tl.split(odds.reshape(LANES, 2, 2))
        o0, o2 = tl.split(firsts)
        o1, _ = tl.split(seconds)
        result = tl.join(tl.join(before, o1), tl.join(o0, o2)).reshape(LANES, 4)
    return result


@triton.jit
def strip_kernel(
    x_ptr, out_ptr, lanes, H, W, H_out, strips, ROWS: tl.constexpr, VEC: tl.constexpr, LANES: tl.constexpr
):
    """One program, LANES strips of ROWS rows of VEC / 2 results; x [planes, H, W], out [planes, H_out, W / 2]; 3×3, stride 2.

    The strips, `lanes` in all, are counted along a row first. W is a multiple of VEC, so that every load is aligned.
    """
    # There are maxima of fp16 itself, but not of bf16.
    WIDER: tl.constexpr = tl.float32 if out_ptr.dtype.element_ty == tl.bfloat16 else out_ptr.dtype.element_ty
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    held = lane < lanes
    lane = tl.minimum(lane, lanes - 1)
    loads = W // VEC
    strip = lane // loads
    column = lane % loads * VEC
    plane = strip // strips
    first = strip % strips * ROWS
    source = x_ptr + tl.multiple_of(plane.to(tl.int64) * H * W + column, VEC)
    vector = tl.arange(0, VEC)[None, :]
    left = tl.where(column > 0, -1, 0)
    target = out_ptr + tl.multiple_of(plane.to(tl.int64) * H_out * loads * (VEC // 2) + column // 2, VEC // 2)
    half = tl.arange(0, VEC // 2)[None, :]

    # Input row 2·first - 1 and those below it; ahead of every store, which the compiler does not move loads across.
    wides, lefts = (), ()
    for r in tl.static_range(2 * ROWS + 1):
        row = tl.maximum(2 * first + r - 1, 0) if r == 0 else tl.minimum(2 * first + r - 1, H - 1)
        at = source + tl.multiple_of(row * W, VEC)
        wides = wides + (tl.load(at[:, None] + vector).to(WIDER),)  # noqa: RUF005 - Triton knows no unpacking
        lefts = lefts + (tl.load(at + left).to(WIDER),)  # noqa: RUF005
    for r in tl.static_range(ROWS):
        tallest = tl.maximum(tl.maximum(wides[2 * r], wides[2 * r + 1]), wides[2 * r + 2])
        tallest_left = tl.maximum(tl.maximum(lefts[2 * r], lefts[2 * r + 1]), lefts[2 * r + 2])
        evens, odds = tl.split(tallest.reshape(LANES, VEC // 2, 2))
        before = shifted(odds, tallest_left, LANES, VEC // 2)
        at = target + tl.multiple_of((first + r) * loads * (VEC // 2), VEC // 2)
        tl.store(
            at[:, None] + half,
            tl.maximum(tl.maximum(before, evens), odds).to(out_ptr.dtype.element_ty),
            mask=(held & (first + r < H_out))[:, None],
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
) -> torch.Tensor:
    """Return the pooled images [N·C·H_out·W_out] of input [N·C·H·W], both flat NCHW."""
    H_out, W_out = ((extent + 2 * padding - kernel_size) // stride + 1 for extent in (H, W))
    out = torch.empty(N * C * H_out * W_out, dtype=input.dtype, device=input.device)
    vec = 16 // input.element_size()
    if (kernel_size, stride, padding) == (3, 2, 1) and W % vec == 0 and input.data_ptr() % 16 == 0:
        strips = triton.cdiv(H_out, ROWS)
        lanes = N * C * strips * (W // vec)
        strip_kernel[(triton.cdiv(lanes, LANES),)](
            input, out, lanes, H, W, H_out, strips, ROWS=ROWS, VEC=vec, LANES=LANES, num_warps=LANES // 32
        )
    else:
        grid = (triton.cdiv(out.numel(), 512),)
        window_kernel[grid](
            input, out, out.numel(), H, W, H_out, W_out, stride, padding, SIZE=kernel_size, BLOCK=512, num_warps=4
        )
    return out


def default(case: Case) -> Config:
    # Longer strips read fewer rows twice, but leave fewer threads.
    return {"ROWS": 1 if case["H"] <= 96 else 2 if case["H"] <= 256 else 4, "LANES": 128}


def space(case: Case) -> list[Config]:
    return [{"ROWS": rows, "LANES": lanes} for rows in (1, 2, 3, 4, 8) for lanes in (64, 128, 256)]


KERNEL = Kernel(run=run, default=default, space=space)
