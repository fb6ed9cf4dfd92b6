"""Blockwise dequantisation in cuTile: a block's tile lies inside one scale block, so its scale is a scalar."""

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel


@ct.kernel
def exact_kernel(x, s, y, T: ct.Constant[int], ROWS: ct.Constant[int], COLS: ct.Constant[int]):
    """As `dequantize_kernel`, where ROWS divides T and M, COLS divides T and N: no tile reaches over an edge.

    A load with a check becomes a branch, into which the compiler moves the product with the scale: each load then waits for
    the one before it, the first for the scale. Loads without are all under way at once.
    """
    j, i = ct.bid(0), ct.bid(1)
    t = ct.load(x, (i, j), (ROWS, COLS), check_bounds=False, allow_tma=False)
    scale = ct.load(s, (i // (T // ROWS), j // (T // COLS)), (), check_bounds=False)
    result = t.astype(ct.float32) * scale.astype(ct.float32)
    ct.store(y, (i, j), result.astype(y.dtype), check_bounds=False, allow_tma=False)


@ct.kernel
def dequantize_kernel(x, s, y, T: ct.Constant[int], ROWS: ct.Constant[int], COLS: ct.Constant[int]):
    """One block, one tile of ROWS × COLS: x, y [M, N]; s [⌈M/T⌉, ⌈N/T⌉].

    A scale block has ⌈T/ROWS⌉ × ⌈T/COLS⌉ tiles. T is a constant of the compiled kernel: it belongs to the quantisation
    format, and divisions by it become shifts. TMA takes longer to set up than it saves on such small tiles.
    """
    j, i = ct.bid(0), ct.bid(1)
    down, across = ct.cdiv(T, ROWS), ct.cdiv(T, COLS)
    block_row, block_col = i // down, j // across
    scale = ct.load(s, (block_row, block_col), ()).astype(ct.float32)
    if T % ROWS == 0 and T % COLS == 0:
        t = ct.load(x, (i, j), (ROWS, COLS), allow_tma=False).astype(ct.float32)
        ct.store(y, (i, j), (t * scale).astype(y.dtype), allow_tma=False)
    else:
        # The last tiles reach over their block's end, where the next block's scale holds. On arrays that end where the
        # block ends, such elements are dropped; tiles without any other elements are left out.
        row, col = i % down, j % across
        top, left = block_row * T, block_col * T
        bottom, right = ct.minimum(top + T, x.shape[0]), ct.minimum(left + T, x.shape[1])
        if top + row * ROWS < bottom and left + col * COLS < right:
            source = x.slice(0, top, bottom).slice(1, left, right)
            target = y.slice(0, top, bottom).slice(1, left, right)
            t = ct.load(source, (row, col), (ROWS, COLS), allow_tma=False).astype(ct.float32)
            ct.store(target, (row, col), (t * scale).astype(y.dtype), allow_tma=False)


def run(X: torch.Tensor, S: torch.Tensor, M: int, N: int, T: int, *, ROWS: int, COLS: int) -> torch.Tensor:
    """Return Y [M, N] = X [M, N] times S [⌈M/T⌉, ⌈N/T⌉], every element of S for a block of T × T."""
    Y = torch.empty_like(X)
    # The tiles of a row of blocks are neighbours in the grid, so that blocks that run together read whole rows.
    if T % ROWS == 0 and T % COLS == 0:
        grid = (ct.cdiv(N, COLS), ct.cdiv(M, ROWS))
    else:
        grid = (ct.cdiv(N, T) * ct.cdiv(T, COLS), ct.cdiv(M, T) * ct.cdiv(T, ROWS))
    exact = T % ROWS == 0 and T % COLS == 0 and M % ROWS == 0 and N % COLS == 0
    kernel = exact_kernel if exact else dequantize_kernel
    ct.launch(torch.cuda.current_stream(), grid, kernel, (X, S, Y, T, ROWS, COLS))
    return Y


def default(case: Case) -> Config:
    # A tile as wide as the block (128 columns), and two 16-byte vectors per thread.
    return {"ROWS": 32 // case.dtype_size, "COLS": 128}


def space(case: Case) -> list[Config]:
    return [
        {"ROWS": size // cols // case.dtype_size, "COLS": cols}
        for size in (2048, 4096, 8192, 16384)
        for cols in (64, 128)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
