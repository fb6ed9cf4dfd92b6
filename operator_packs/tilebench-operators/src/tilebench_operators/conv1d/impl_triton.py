"""One-dimensional convolution in Triton: channels-last pass, then implicit GEMM; both are in `tilebench_operators._conv`.

The grid is bound by memory (192 FLOP per byte in fp16): the channels-last pass doubles the traffic, 4 passes over x or out
instead of 2, and is still far cheaper than a main loop that can't use TMA.
"""

import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._conv import convolution


def run(
    input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int, *,
    BM: int, BN: int, BK: int, num_warps: int, num_stages: int,
) -> torch.Tensor:  # fmt: skip
    """Return out [batch, Cout, L_out] of input [batch, Cin, L] and weight [Cout, Cin / groups, taps]."""
    return convolution(
        input, weight, stride, padding, groups, BM=BM, BH=1, BW=BN, BK=BK, num_warps=num_warps, num_stages=num_stages
    )


def default(case: Case) -> Config:
    # 128 bytes of reduction per step; three stages take 96 KiB, so two programs share a multiprocessor and one's
    # store overlaps the other's products: the reduction has only taps · Cin / BK = 6 steps in fp16.
    bm, bn = (128, 128) if case["L"] >= 132 * 128 else (64, 64)
    return {"BM": bm, "BN": bn, "BK": 128 // case.dtype_size, "num_warps": 4, "num_stages": 3}


def space(case: Case) -> list[Config]:
    # Of 8 warps' tiles ptxas serializes the products of 256 columns in fp16 and of 128 in fp32.
    wide = 256 if case.dtype == "fp32" else 128
    tiles = [(64, 128, 4), (64, 256, 4), (128, 64, 4), (128, 128, 4), (128, wide, 8)]
    return [
        {"BM": bm, "BN": bn, "BK": bk // case.dtype_size, "num_warps": warps, "num_stages": stages}
        for bm, bn, warps in tiles
        for bk, depths in ((128, (2, 3, 4)), (256, (2, 3)))
        for stages in depths
        if stages * bk * (bm + bn) <= 212_992
    ]


KERNEL = Kernel(run=run, default=default, space=space)
