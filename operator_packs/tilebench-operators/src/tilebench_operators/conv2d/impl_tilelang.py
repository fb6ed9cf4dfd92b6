"""Two-dimensional convolution in TileLang: an implicit GEMM that lays out its input itself, in `_tilelang_image`.

The grid is bound by the tensor cores and by L2 where the image is large. Small images are bound by latency: up to 48 rows of 48
pixels (fp16, 32 in fp32) they are left to `_small`, whose blocks do not wait for one another.
"""

import math
from typing import Any

import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tilelang_conv import unsupported
from tilebench_operators._tilelang_image import convolution, stages_that_fit, work
from tilebench_operators.conv2d import _small

# BM, rows of 16 pixels, bytes of the reduction per step, threads that multiply, blocks that share a tile. A stage holds three taps
# of weights. Half the depth and twice the stages for large tiles: a stage is fetched while the others are multiplied. Tiles of 64
# channels load the fewest bytes where there are few pixels; two warp groups take half the pixels each then.
LARGE = {
    "fp16": [(128, rows, 64, 256, 1) for rows in (15, 14, 13, 12, 11, 10, 9, 7, 5)],
    "fp32": [(128, rows, 64, 256, 1) for rows in (15, 14, 13, 10, 9, 7, 6, 5)],
}
MIDDLE = [(64, rows, 64, 256, 1) for rows in (22, 18, 16, 14, 10)]
SMALL = [(64, rows, 128, 128, 1) for rows in (7, 5, 4, 3, 2, 1)]
# Three blocks take a column of taps each and add their sums to the output, which only fp32 can hold.
SHARED = {"fp16": [], "fp32": [(*tile, 3) for *tile, _ in MIDDLE + SMALL]}
TAPS = (1, 3, 3)
# Of `_small`, by columns of 16 pixels: warps that share the reduction, and columns of a warp. The smallest images are one chunk,
# so that they wait for memory once. The others load a chunk while they multiply another, and registers hold it meanwhile.
SHARES = {
    "fp16": {1: (8, 1), 2: (8, 2), 3: (4, 1)},
    "fp32": {1: (16, 1), 2: (16, 2)},
}


def _dtype(case: Case) -> torch.dtype:
    return torch.float16 if case.dtype == "fp16" else torch.float32


def _config(case: Case, bm: int, rows: int, depth: int, threads: int, split: int) -> Config:
    bk = depth // case.dtype_size
    stages = min(6, stages_that_fit(_dtype(case), TAPS, bm, rows, bk, threads))
    return {"BM": bm, "BH": rows, "BK": bk, "stages": stages, "threads": threads, "SPLIT": split}


def _tiles(case: Case) -> list[tuple[int, int, int, int, int]]:
    return LARGE[case.dtype] + MIDDLE + SMALL + SHARED[case.dtype]


def _small_configs(case: Case) -> list[Config]:
    """Those of `_small` that suit the case, the likely best first; none if the image is large or not made of whole products."""
    width = case["W"] or case["H"]
    plain = case["k"] == 3 and case["stride"] == case["padding"] == case["groups"] == 1
    if not plain or width % 16 or width // 16 not in SHARES[case.dtype] or case["H"] > 3 * 16:
        return []
    bands = max(1, 132 * _small.BM // (case["batch"] * case["Cout"]))  # so that every multiprocessor has one block
    rows = -(-case["H"] // bands)
    best, extent = SHARES[case.dtype][width // 16], (case["Cin"], case["Cout"], width, rows)
    shares = [best] + [(split, columns) for split in (2, 4, 8) for columns in (1, 2, 3) if (split, columns) != best]
    # Few channels have few products to share.
    shares = [(math.gcd(split, case["Cin"] * case.dtype_size // _small.STEP), columns) for split, columns in shares]
    return [
        {"rows": rows, "split": split, "columns": columns}
        for split, columns in dict.fromkeys(shares)
        if _small.fits(_dtype(case), *extent, split, columns)
    ]


def run(
    input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int, **config: Any
) -> torch.Tensor:
    """Return out [batch, Cout, H_out, W_out] of input [batch, Cin, H, W] and weight [Cout, Cin / groups, k, k]."""
    convolve = _small.convolution if "rows" in config else convolution
    return convolve(input, weight, stride, padding, groups, **config)


def default(case: Case) -> Config:
    for config in _small_configs(case):
        return config
    configs = [_config(case, *tile) for tile in _tiles(case)]
    return min(configs, key=lambda c: work(case, TAPS, c["BM"], c["BH"], c["stages"], c["SPLIT"]))


def space(case: Case) -> list[Config]:
    small = _small_configs(case)
    if small:
        return small + [_config(case, *tile) for tile in MIDDLE + SMALL + SHARED[case.dtype]]
    deep = [(128, rows, 128, 256, 1) for rows in ((13, 11, 9, 7, 5) if case.dtype == "fp16" else (6, 5))]
    return [_config(case, *tile) for tile in _tiles(case) + deep]


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
