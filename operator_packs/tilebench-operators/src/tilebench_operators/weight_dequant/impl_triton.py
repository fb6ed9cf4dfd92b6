"""Blockwise dequantisation in Triton: a program's tile lies inside one scale block, so its scale is a scalar."""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def dequantize_kernel(x_ptr, s_ptr, y_ptr, M, N, T: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """One program, one tile of ROWS × COLS: x, y [M, N]; s [⌈M/T⌉, ⌈N/T⌉].

    A scale block has ⌈T/ROWS⌉ × ⌈T/COLS⌉ tiles; the last of a row or column of tiles may reach over its block's end,
    where the next block's scale holds, and is masked there. T is a constant of the compiled kernel: it belongs to the
    quantisation format, and divisions by it become shifts.
    """
    tiles_down = tl.cdiv(T, ROWS)
    tiles_across = tl.cdiv(T, COLS)
    block_row = tl.program_id(1) // tiles_down
    block_col = tl.program_id(0) // tiles_across
    scale = tl.load(s_ptr + block_row * tl.cdiv(N, T) + block_col).to(tl.float32)

    row = block_row * T + tl.program_id(1) % tiles_down * ROWS + tl.arange(0, ROWS)
    col = block_col * T + tl.program_id(0) % tiles_across * COLS + tl.arange(0, COLS)
    row_mask = (row < block_row * T + T) & (row < M)
    # Two comparisons, not one with the minimum: for a minimum the compiler no longer sees that 16 divides the bound,
    # and without that a masked load is not vectorised.
    col_mask = (col < block_col * T + T) & (col < N)
    offsets = row[:, None].to(tl.int64) * N + col[None, :]
    mask = row_mask[:, None] & col_mask[None, :]
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(y_ptr + offsets, (x * scale).to(y_ptr.dtype.element_ty), mask=mask)


def run(
    X: torch.Tensor, S: torch.Tensor, M: int, N: int, T: int, *, ROWS: int, COLS: int, num_warps: int
) -> torch.Tensor:
    """Return Y [M, N] = X [M, N] times S [⌈M/T⌉, ⌈N/T⌉], every element of S for a block of T × T."""
    Y = torch.empty_like(X)
    # The tiles of a row of blocks are neighbours in the grid, so that programs that run together read whole rows.
    grid = (triton.cdiv(N, T) * triton.cdiv(T, COLS), triton.cdiv(M, T) * triton.cdiv(T, ROWS))
    dequantize_kernel[grid](X, S, Y, M, N, T=T, ROWS=ROWS, COLS=COLS, num_warps=num_warps)
    return Y


def _config(case: Case, bytes_per_thread: int, cols: int, num_warps: int) -> Config:
    elements = num_warps * 32 * bytes_per_thread // case.dtype_size
    return {"ROWS": max(1, elements // cols), "COLS": cols, "num_warps": num_warps}


def default(case: Case) -> Config:
    # A tile as wide as the block (128 columns), and two 16-byte vectors per thread.
    return _config(case, bytes_per_thread=32, cols=128, num_warps=4)


def space(case: Case) -> list[Config]:
    return [_config(case, size, cols, warps) for size in (16, 32, 64) for cols in (64, 128) for warps in (2, 4, 8)]


KERNEL = Kernel(run=run, default=default, space=space)
