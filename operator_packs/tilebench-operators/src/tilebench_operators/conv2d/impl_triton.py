"""Two-dimensional convolution in Triton: channels-last pass, then implicit GEMM; both are in `tilebench_operators._conv`.

The grid is bound by the tensor cores where the image is large. Small images have too few pixels to occupy every
multiprocessor: there a program takes few pixels, and few but deep steps.
"""

import triton
from tilebench_core import Case, Config, Kernel

from tilebench_operators._conv import box, convolution

# BM, pixels, bytes of reduction per step, warps, stages. Three stages of 128×128 take 96 KiB, so that two programs share a
# multiprocessor. The small tiles wait for memory and want more bytes under way.
TILES = [(128, 128, 128, 4, 3), (128, 64, 128, 4, 4), (64, 64, 128, 4, 5), (64, 32, 256, 4, 4), (64, 16, 256, 4, 5)]


def _config(case: Case, bm: int, pixels: int, bk: int, warps: int, stages: int) -> Config:
    bh, bw = box(case["H"], case["W"] or case["H"], pixels)
    return {"BM": bm, "BH": bh, "BW": bw, "BK": bk // case.dtype_size, "num_warps": warps, "num_stages": stages}


def default(case: Case) -> Config:
    # The largest tile that still gives almost every multiprocessor a program.
    pixels = case["H"] * (case["W"] or case["H"])
    programs = [triton.cdiv(case["Cout"], tile[0]) * triton.cdiv(pixels, tile[1]) for tile in TILES]
    return _config(case, *next((tile for tile, count in zip(TILES, programs, strict=True) if count >= 120), TILES[-1]))


def space(case: Case) -> list[Config]:
    # Of 8 warps' tiles ptxas serializes the products of 256 pixels in fp16 and of 128 in fp32.
    wide = 256 if case.dtype == "fp32" else 128
    tiles = [(64, 16, 4), (64, 32, 4), (64, 64, 4), (64, 128, 4), (128, 64, 4), (128, 128, 4), (128, wide, 8)]
    return [
        _config(case, bm, pixels, bk, warps, stages)
        for bm, pixels, warps in tiles
        for bk, depths in ((128, (3, 4, 6)), (256, (2, 3)))
        for stages in depths
        if stages * bk * (bm + pixels) <= 212_992
    ]


KERNEL = Kernel(run=convolution, default=default, space=space)
