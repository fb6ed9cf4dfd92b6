"""Kullback-Leibler divergence in cuTile: one block adds up one row, lane by lane, and reduces its lanes once."""

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tile_rows import hinted

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def divergence_kernel(log_predicted, true, loss, TILE: ct.Constant[int]):
    """One block, one row in chunks of TILE: both inputs are [rows, cols] fp32, loss [rows] fp32."""
    row = ct.bid(0)
    sums = ct.zeros((1, TILE), ct.float32)
    for chunk in range(ct.cdiv(true.shape[1], TILE)):
        # TMA takes longer to set up than it saves on a tile of one row.
        t = ct.load(true, (row, chunk), (1, TILE), padding_mode=ZERO, allow_tma=False)
        predicted = ct.load(log_predicted, (row, chunk), (1, TILE), padding_mode=ZERO, allow_tma=False)
        # Where t is 0 the logarithm is taken of 1 instead, and 0·(0 - predicted) adds nothing.
        sums += t * (ct.log(ct.where(t > 0.0, t, 1.0)) - predicted)
    ct.store(loss, (row,), ct.sum(sums, 1))


def run(log_predicted: torch.Tensor, true: torch.Tensor, *, TILE: int, WARPS: int) -> torch.Tensor:
    """Return Σ true·(ln true - log_predicted) over the last axis of two [rows, cols], [rows] fp32; 0·ln 0 is 0."""
    rows = true.shape[0]
    loss = torch.empty(rows, dtype=torch.float32, device=true.device)
    arguments = (log_predicted, true, loss, TILE)
    ct.launch(torch.cuda.current_stream(), (rows,), hinted(divergence_kernel, WARPS), arguments)
    return loss


def default(case: Case) -> Config:
    # Few rows get more warps each, so that the resident blocks of 132 SMs still fill them; a thread loads 16 bytes
    # twice from each input.
    warps = 8 if case["rows"] <= 1024 and case["cols"] >= 2048 else 4
    return {"TILE": 256 * warps, "WARPS": warps}


def space(case: Case) -> list[Config]:
    return [
        {"TILE": tile, "WARPS": warps}
        for tile in (512, 1024, 2048, 4096)
        for warps in (4, 8)
        if tile <= max(case["cols"], 512) and 4 <= tile // (32 * warps) <= 32
    ]


KERNEL = Kernel(run=run, default=default, space=space)
