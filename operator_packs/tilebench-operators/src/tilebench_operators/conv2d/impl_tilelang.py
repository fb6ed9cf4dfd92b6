"""Two-dimensional convolution in TileLang: an implicit GEMM that lays out its input itself, in `_tilelang_image`.

The grid is bound by the tensor cores and by L2 where the image is large. Small images have too few pixels to occupy every
multiprocessor: there a block takes few pixels.
"""

import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tilelang_conv import unsupported
from tilebench_operators._tilelang_image import convolution, stages_that_fit, work

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


def _config(case: Case, bm: int, rows: int, depth: int, threads: int, split: int) -> Config:
    bk = depth // case.dtype_size
    dtype = torch.float16 if case.dtype == "fp16" else torch.float32
    stages = min(6, stages_that_fit(dtype, TAPS, bm, rows, bk, threads))
    return {"BM": bm, "BH": rows, "BK": bk, "stages": stages, "threads": threads, "SPLIT": split}


def _tiles(case: Case) -> list[tuple[int, int, int, int, int]]:
    return LARGE[case.dtype] + MIDDLE + SMALL + SHARED[case.dtype]


def default(case: Case) -> Config:
    configs = [_config(case, *tile) for tile in _tiles(case)]
    return min(configs, key=lambda c: work(case, TAPS, c["BM"], c["BH"], c["stages"], c["SPLIT"]))


def space(case: Case) -> list[Config]:
    deep = [(128, rows, 128, 256, 1) for rows in ((13, 11, 9, 7, 5) if case.dtype == "fp16" else (6, 5))]
    return [_config(case, *tile) for tile in _tiles(case) + deep]


KERNEL = Kernel(run=convolution, default=default, space=space, unsupported=unsupported)
