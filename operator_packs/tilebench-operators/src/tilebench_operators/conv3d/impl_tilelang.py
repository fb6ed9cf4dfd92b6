"""Three-dimensional convolution in TileLang: an implicit GEMM that lays out its input itself, in `_tilelang_image`.

Each value of x meets only 64 output channels per load, and 27 taps want it, so that L2 bandwidth is the limit: a block takes
all 64 channels and many pixels, and a step the three taps of a column, which share their rows of x.
"""

import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tilelang_conv import unsupported
from tilebench_operators._tilelang_image import convolution, stages_that_fit, work

# BM, rows of 16 pixels, bytes of the reduction per step, threads that multiply. Two warp groups take half the pixels each: an even
# number of rows. Half the depth and twice the stages for large tiles: a stage is fetched while the others are multiplied.
LARGE = {
    "fp16": [(64, rows, 64, 256) for rows in (30, 28, 26, 24, 22, 20, 18, 16, 14, 10)],
    "fp32": [(64, rows, 64, 256) for rows in (26, 24, 22, 20, 18, 16, 14, 10)],
}
SMALL = [(64, rows, 128, 128) for rows in (7, 5, 4, 3, 2, 1)]
TAPS = (3, 3, 3)


def _config(case: Case, bm: int, rows: int, depth: int, threads: int) -> Config:
    bk = depth // case.dtype_size
    dtype = torch.float16 if case.dtype == "fp16" else torch.float32
    stages = min(6, stages_that_fit(dtype, TAPS, bm, rows, bk, threads))
    return {"BM": bm, "BH": rows, "BK": bk, "stages": stages, "threads": threads}


def default(case: Case) -> Config:
    configs = [_config(case, *tile) for tile in LARGE[case.dtype] + SMALL]
    return min(configs, key=lambda c: work(case, TAPS, c["BM"], c["BH"], c["stages"]))


def space(case: Case) -> list[Config]:
    deep = [(64, rows, 128, 256) for rows in ((18, 14, 10) if case.dtype == "fp16" else (14, 10))]
    return [_config(case, *tile) for tile in LARGE[case.dtype] + SMALL + deep]


KERNEL = Kernel(run=convolution, default=default, space=space, unsupported=unsupported)
