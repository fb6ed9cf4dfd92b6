"""Blockwise dequantisation in TileLang: a block's tile lies inside one scale block, so its scale is a scalar."""

import math

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel


# As seen in the generated code: where an address takes bits of the thread's index apart, as that of a tile of several
# rows does, nvcc splits 16-byte stores into 4-byte ones. This setting makes every wide access one instruction.
@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_ENABLE_LOWER_LDGSTG: True})
def dequantize_kernel(dtype: torch.dtype, SCALE_BLOCK: int, ROWS: int, COLS: int, VEC: int, threads: int):
    """One block, one tile of ROWS × COLS: x, y [M, N]; s [⌈M/T⌉, ⌈N/T⌉] with T = SCALE_BLOCK; VEC divides N and T.

    A scale block has ⌈T/ROWS⌉ × ⌈T/COLS⌉ tiles; the last of a row or column of tiles may reach over its block's end,
    where the next block's scale holds, and stops there. T is a constant of the compiled kernel: it belongs to the
    quantisation format, and divisions by it become shifts.
    """
    M, N = T.dynamic("M"), T.dynamic("N")
    down, across = T.ceildiv(SCALE_BLOCK, ROWS), T.ceildiv(SCALE_BLOCK, COLS)

    @T.prim_func
    def dequantize(
        x: T.Tensor((M, N), dtype),
        s: T.Tensor((T.ceildiv(M, SCALE_BLOCK), T.ceildiv(N, SCALE_BLOCK)), dtype),
        y: T.Tensor((M, N), dtype),
    ):
        # The tiles of a row of scale blocks are neighbours in the grid: blocks that run together read whole rows.
        with T.Kernel(T.ceildiv(N, SCALE_BLOCK) * across, T.ceildiv(M, SCALE_BLOCK) * down, threads=threads) as (
            tile_col,
            tile_row,
        ):
            T.assume(N % VEC == 0)  # so that every row starts at a multiple of VEC, and accesses are VEC wide
            scale = T.cast(s[tile_row // down, tile_col // across], T.float32)
            top, left = tile_row % down * ROWS, tile_col % across * COLS  # of the tile in its scale block
            row, col = tile_row // down * SCALE_BLOCK + top, tile_col // across * SCALE_BLOCK + left
            values = T.alloc_fragment((ROWS, COLS), dtype)
            # All loads stand before the stores, so that they are in flight together.
            for i, j in T.Parallel(ROWS, COLS):
                if top + i < SCALE_BLOCK and left + j < SCALE_BLOCK and row + i < M and col + j < N:
                    values[i, j] = x[row + i, col + j]
            for i, j in T.Parallel(ROWS, COLS):
                if top + i < SCALE_BLOCK and left + j < SCALE_BLOCK and row + i < M and col + j < N:
                    y[row + i, col + j] = T.cast(T.cast(values[i, j], T.float32) * scale, dtype)

    return dequantize


def run(
    X: torch.Tensor, S: torch.Tensor, M: int, N: int, T: int, *, ROWS: int, COLS: int, threads: int
) -> torch.Tensor:
    """Return Y [M, N] = X [M, N] times S [⌈M/T⌉, ⌈N/T⌉], every element of S for a block of T × T."""
    Y = torch.empty_like(X)
    VEC = math.gcd(N, T, 16 // X.element_size())
    dequantize_kernel(X.dtype, T, ROWS, COLS, VEC, threads)(X, S, Y)
    return Y


def _config(case: Case, bytes_per_thread: int, cols: int, threads: int) -> Config:
    return {"ROWS": threads * bytes_per_thread // case.dtype_size // cols, "COLS": cols, "threads": threads}


def default(case: Case) -> Config:
    # A tile as wide as the block (128 columns), and two 16-byte vectors per thread.
    return _config(case, bytes_per_thread=32, cols=128, threads=128)


def space(case: Case) -> list[Config]:
    return [
        _config(case, size, cols, threads) for size in (16, 32, 64) for cols in (64, 128) for threads in (64, 128, 256)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
