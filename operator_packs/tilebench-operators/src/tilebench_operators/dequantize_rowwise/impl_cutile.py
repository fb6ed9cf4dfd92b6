"""Rowwise dequantisation in cuTile: a block takes a tile of a few rows and reads one scale for each.

A thread gets eight elements of a tile: 16 bytes of the fp16 output, which is two thirds of the traffic, in one store.
With sixteen (16 bytes of the int8 input as well) the values have to change threads between load and store. So what a
block reads beyond that is in tiles of their own, and the loads of all of them are under way before the first is used.
"""

import functools

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._cutile_rows import load, store

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def dequantize_kernel(
    x, state, y, ROWS: ct.Constant[int], COLS: ct.Constant[int], TILES: ct.Constant[int], INSIDE: ct.Constant[bool]
):  # fmt: skip
    """One block, a tile of ROWS × COLS in each of TILES parts: x, y [TILES, rows, cols], state [TILES, rows, 1].

    What lies beyond the edge is never stored. INSIDE says that nothing does. The parts are an axis of their own, so that
    the compiler knows that stores to them don't overlap; it would order them by barriers otherwise.
    """
    column, row = ct.bid(0), ct.bid(1)
    tiles = ()
    for part in ct.static_iter(range(TILES)):
        t = load(x, (part, row, column), (1, ROWS, COLS), INSIDE, ZERO)
        scale = load(state, (part, row, 0), (1, ROWS, 1), INSIDE, ZERO)
        tiles += ((t, scale * (1.0 / 127.0)),)
    for part in ct.static_iter(range(TILES)):
        t, scale = tiles[part]
        store(y, (part, row, column), (t.astype(ct.float32) * scale).astype(y.dtype), INSIDE)


@functools.cache
def hinted(warps: int) -> ct.kernel:
    """`dequantize_kernel` for blocks of `warps` warps. A hinted kernel has compiled code of its own."""
    return dequantize_kernel.replace_hints(num_worker_warps=warps)


def run(x: torch.Tensor, state_x: torch.Tensor, *, ROWS: int, COLS: int, TILES: int, WARPS: int) -> torch.Tensor:
    """Return y [rows, cols], fp16, of x [rows, cols], int8, and state_x [rows], fp32."""
    rows, cols = x.shape
    y = torch.empty_like(x, dtype=torch.float16)
    inside = rows % (ROWS * TILES) == 0 and cols % COLS == 0
    tiles = TILES if inside else 1
    grid = (ct.cdiv(cols, COLS), ct.cdiv(rows, ROWS * tiles))
    parts = (tiles, rows // tiles)
    arguments = (x.view(*parts, cols), state_x.view(*parts, 1), y.view(*parts, cols), ROWS, COLS, tiles, inside)
    ct.launch(torch.cuda.current_stream(), grid, hinted(WARPS), arguments)
    return y


def default(case: Case) -> Config:
    # A tile has 2048 elements: a thread of 256 gets eight. 1024 columns, or the whole row if it is shorter. And as many
    # tiles as leave four blocks for each of 132 SMs.
    columns = min(1024, max(64, 1 << (case["cols"] - 1).bit_length()))
    blocks = case["rows"] * case["cols"] // 2048
    tiles = 4 if blocks >= 4 * 528 else 2 if blocks >= 2 * 528 else 1
    return {"ROWS": 2048 // columns, "COLS": columns, "TILES": tiles, "WARPS": 8}


def space(case: Case) -> list[Config]:
    return [
        {"ROWS": 256 * warps // columns, "COLS": columns, "TILES": tiles, "WARPS": warps}
        for columns in (256, 512, 1024)
        for tiles in (1, 2, 4, 8)
        for warps in (4, 8)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
