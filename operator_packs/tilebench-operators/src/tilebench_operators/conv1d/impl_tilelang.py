"""One-dimensional convolution in TileLang: channels-last pass, then implicit GEMM; both are in `_tilelang_conv`.

The grid is bound by memory (192 FLOP per byte in fp16), and the channels-last pass doubles what is moved. fp16 tiles could
be multiplied as they lie, by TMA boxes at shifted positions; a kernel that did so ended in an illegal instruction on the
H200, and was given up for this one.
"""

import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tilelang_conv import convolution, unsupported


def run(
    input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int, *,
    BM: int, BN: int, stages: int, threads: int,
) -> torch.Tensor:  # fmt: skip
    """Return out [batch, Cout, L_out] of input [batch, Cin, L] and weight [Cout, Cin / groups, taps]."""
    depth = 128 // input.element_size()
    return convolution(
        input, weight, stride, padding, groups, BM=BM, BH=1, BW=BN, BK=depth, stages=stages, threads=threads
    )


def _config(BM: int, BN: int, stages: int, threads: int) -> Config:
    return {"BM": BM, "BN": BN, "stages": stages, "threads": threads}


def default(case: Case) -> Config:
    return _config(128, 128, 4, 256)


def space(case: Case) -> list[Config]:
    tiles = [(128, 64, 4), (128, 64, 6), (128, 128, 3), (128, 128, 4), (128, 128, 5), (128, 256, 2), (64, 256, 3)]
    if case.dtype == "fp16":
        tiles += [(128, 256, 3)]
    return [_config(*tile, 256) for tile in tiles]


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
