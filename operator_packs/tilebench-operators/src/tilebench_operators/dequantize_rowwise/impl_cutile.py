"""Rowwise dequantisation in cuTile: a block takes a tile of a few rows and reads one scale for each.

A thread gets eight elements: 16 bytes of the fp16 output, which is two thirds of the traffic, in one store. With
sixteen (16 bytes of the int8 input as well) the values have to change threads between load and store.
"""

import functools

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel


@ct.kernel
def dequantize_kernel(x, state, y, ROWS: ct.Constant[int], COLS: ct.Constant[int]):
    """One block, a tile of ROWS × COLS: x, y [rows, cols], state [rows]. What lies beyond the edge is never stored."""
    column, row = ct.bid(0), ct.bid(1)
    # TMA takes longer to set up than it saves on such small tiles.
    t = ct.load(x, (row, column), (ROWS, COLS), allow_tma=False).astype(ct.float32)
    scale = ct.load(state, (row,), (ROWS,), allow_tma=False)
    result = scale[:, None] * t * (1.0 / 127.0)
    ct.store(y, (row, column), result.astype(y.dtype), allow_tma=False)


@functools.cache
def hinted(warps: int) -> ct.kernel:
    """`dequantize_kernel` for blocks of `warps` warps. A hinted kernel has compiled code of its own."""
    return dequantize_kernel.replace_hints(num_worker_warps=warps)


def run(x: torch.Tensor, state_x: torch.Tensor, *, ROWS: int, COLS: int, WARPS: int) -> torch.Tensor:
    """Return y [rows, cols], fp16, of x [rows, cols], int8, and state_x [rows], fp32."""
    rows, cols = x.shape
    y = torch.empty_like(x, dtype=torch.float16)
    grid = (ct.cdiv(cols, COLS), ct.cdiv(rows, ROWS))
    ct.launch(torch.cuda.current_stream(), grid, hinted(WARPS), (x, state_x, y, ROWS, COLS))
    return y


def default(case: Case) -> Config:
    # 2048 elements: a thread of 256 gets eight. A chunk of 1024 columns, or the whole row if it is shorter.
    columns = min(1024, max(64, 1 << (case["cols"] - 1).bit_length()))
    return {"ROWS": 2048 // columns, "COLS": columns, "WARPS": 8}


def space(case: Case) -> list[Config]:
    return [
        {"ROWS": elements // columns, "COLS": columns, "WARPS": warps}
        for columns in (256, 512, 1024)
        for elements in (1024, 2048, 4096)
        for warps in (4, 8)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
