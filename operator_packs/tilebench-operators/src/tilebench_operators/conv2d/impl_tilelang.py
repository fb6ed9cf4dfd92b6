"""Two-dimensional convolution in TileLang: channels-last pass, then implicit GEMM; both are in `_tilelang_image`.

The grid is bound by the tensor cores and by L2 where the image is large. Small images have too few pixels to occupy every
multiprocessor: there a block takes few pixels.
"""

import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tilelang_image import convolution, stages_that_fit, unsupported, work

# BM, rows of 16 pixels, bytes of the reduction per step, threads that multiply. A stage holds three taps of weights.
# Half the depth and twice the stages for large tiles: a stage is fetched while the others are multiplied.
LARGE = {
    "fp16": [(128, rows, 64, 256) for rows in (15, 14, 13, 12, 11, 10, 9, 7, 5)],
    "fp32": [(128, rows, 64, 256) for rows in (14, 10, 9, 7, 6, 5)],
}
SMALL = [(64, rows, 128, 128) for rows in (7, 5, 4, 3, 2, 1)]
TAPS = (1, 3, 3)


def _config(case: Case, bm: int, rows: int, depth: int, threads: int) -> Config:
    bk = depth // case.dtype_size
    dtype = torch.float16 if case.dtype == "fp16" else torch.float32
    stages = min(6, stages_that_fit(dtype, TAPS, bm, rows, bk, threads))
    return {"BM": bm, "BH": rows, "BK": bk, "stages": stages, "threads": threads}


def default(case: Case) -> Config:
    return _config(case, *min(LARGE[case.dtype] + SMALL, key=lambda tile: work(case, TAPS, tile[0], tile[1])))


def space(case: Case) -> list[Config]:
    deep = [(128, rows, 128, 256) for rows in ((13, 11, 9, 7, 5) if case.dtype == "fp16" else (6, 5))]
    return [_config(case, *tile) for tile in LARGE[case.dtype] + SMALL + deep]


KERNEL = Kernel(run=convolution, default=default, space=space, unsupported=unsupported)
