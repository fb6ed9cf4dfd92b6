"""Index of the maximum over the last axis in cuTile: one block keeps the best value and its chunk per lane.

A lane meets its chunks in ascending order and changes its mind for strictly larger values only, so it holds its lowest
best column; among lanes with the same best value the lowest column wins. Columns are int32 all along.
"""

import functools
import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

NEG_INF = ct.PaddingMode.NEG_INF
NO_COLUMN = 2**31 - 1


@ct.kernel
def argmax_kernel(x, y, TILE: ct.Constant[int]):
    """One block, one row in chunks of TILE: x is [rows, cols], y [rows] int64. Beyond a row's end is -inf."""
    row = ct.bid(0)
    best = ct.full((1, TILE), -math.inf, ct.float32)
    best_chunks = ct.zeros((1, TILE), ct.int32)  # right for a row of -inf, too
    for chunk in range(ct.cdiv(x.shape[1], TILE)):
        # TMA takes longer to set up than it saves on a tile of one row.
        t = ct.load(x, (row, chunk), (1, TILE), padding_mode=NEG_INF, allow_tma=False).astype(ct.float32)
        larger = t > best
        best = ct.where(larger, t, best)
        best_chunks = ct.where(larger, chunk, best_chunks)
    columns = best_chunks * TILE + ct.arange(TILE, dtype=ct.int32)[None, :]
    candidates = ct.where(best == ct.max(best, 1, keepdims=True), columns, NO_COLUMN)
    ct.store(y, (row,), ct.min(candidates, 1).astype(ct.int64))


@functools.cache
def hinted(occupancy: int) -> ct.kernel:
    """`argmax_kernel` for `occupancy` blocks per SM. A hinted kernel has compiled code of its own."""
    return argmax_kernel.replace_hints(occupancy=occupancy)


def run(x: torch.Tensor, dim: int, *, TILE: int, OCCUPANCY: int) -> torch.Tensor:
    """Return the index of the maximum of x [M, N] over its last axis (`dim` is 1), the lowest on ties, [M] int64."""
    rows = x.shape[0]
    y = torch.empty(rows, dtype=torch.int64, device=x.device)
    ct.launch(torch.cuda.current_stream(), (rows,), hinted(OCCUPANCY), (x, y, TILE))
    return y


def default(case: Case) -> Config:
    # Best values and chunks take two registers per element, so a thread has 16 elements at most; eight blocks at a
    # time make 2048 rows two full turns of 132 SMs.
    return {"TILE": 1024 if case["N"] <= 1024 else 2048, "OCCUPANCY": 8}


def space(case: Case) -> list[Config]:
    return [
        {"TILE": tile, "OCCUPANCY": occupancy}
        for tile in (1024, 2048, 4096)
        for occupancy in (4, 8, 16)
        if tile <= 2 * max(case["N"], 512) and tile * occupancy <= 16384
    ]


KERNEL = Kernel(run=run, default=default, space=space)
