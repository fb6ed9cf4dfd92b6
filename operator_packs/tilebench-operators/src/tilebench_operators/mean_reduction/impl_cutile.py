"""Mean over the last axis in cuTile: one block adds up one row, lane by lane, and reduces its lanes once."""

import functools

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def mean_kernel(x, y, TILE: ct.Constant[int]):
    """One block, one row in chunks of TILE: x is [rows, cols], y [rows] fp32. Zeros beyond a row's end add nothing."""
    row = ct.bid(0)
    sums = ct.zeros((1, TILE), ct.float32)
    for chunk in range(ct.cdiv(x.shape[1], TILE)):
        # TMA takes longer to set up than it saves on a tile of one row.
        sums += ct.load(x, (row, chunk), (1, TILE), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
    ct.store(y, (row,), ct.sum(sums, 1) / x.shape[1])


@functools.cache
def hinted(occupancy: int) -> ct.kernel:
    """`mean_kernel` for `occupancy` blocks per SM. A hinted kernel has compiled code of its own."""
    return mean_kernel.replace_hints(occupancy=occupancy)


def run(x: torch.Tensor, dim: int, *, TILE: int, OCCUPANCY: int) -> torch.Tensor:
    """Return the mean of x [M, N] over its last axis (`dim` is 1), [M] fp32."""
    rows = x.shape[0]
    y = torch.empty(rows, dtype=torch.float32, device=x.device)
    ct.launch(torch.cuda.current_stream(), (rows,), hinted(OCCUPANCY), (x, y, TILE))
    return y


def default(case: Case) -> Config:
    # 2048 rows are 16 for each of 132 SMs: eight blocks at a time are two full turns, and 16 elements per thread keep
    # more than 32 KB in flight on each SM.
    return {"TILE": 1024 if case["N"] <= 1024 else 2048, "OCCUPANCY": 8}


def space(case: Case) -> list[Config]:
    return [
        {"TILE": tile, "OCCUPANCY": occupancy}
        for tile in (1024, 2048, 4096, 8192)
        for occupancy in (4, 8, 16)
        if tile <= 2 * max(case["N"], 512) and tile * occupancy <= 32768
    ]


KERNEL = Kernel(run=run, default=default, space=space)
