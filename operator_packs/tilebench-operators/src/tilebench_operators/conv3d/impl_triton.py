"""Three-dimensional convolution in Triton: channels-last pass, then implicit GEMM; both are in `tilebench_operators._conv`.

Each value of x meets 64 output channels per load and 27 taps load it, so that L2 bandwidth is the limit: a program takes all
64 channels and as many pixels as its registers hold.
"""

from tilebench_core import Case, Config, Kernel

from tilebench_operators._conv import box, convolution


def _config(case: Case, bm: int, pixels: int, bk: int, warps: int, stages: int) -> Config:
    bh, bw = box(case["H"], case["W"] or case["H"], pixels)
    return {"BM": bm, "BH": bh, "BW": bw, "BK": bk // case.dtype_size, "num_warps": warps, "num_stages": stages}


def default(case: Case) -> Config:
    # BM, pixels, bytes of reduction per step, warps, stages: two programs share a multiprocessor's shared memory.
    pixels = case["D"] * case["H"] * (case["W"] or case["H"])
    if pixels >= 264 * 256:
        return _config(case, 64, 256, 64, 4, 4)
    if pixels >= 132 * 128:
        return _config(case, 64, 128, 128, 4, 4)
    return _config(case, 64, 64 if pixels >= 132 * 64 else 32, 128, 4, 5)


def space(case: Case) -> list[Config]:
    # Of 8 warps' tiles ptxas serializes the products of 256 pixels in fp16 and of 128 in fp32.
    wide = 256 if case.dtype == "fp32" else 128
    tiles = [(64, 32, 4), (64, 64, 4), (64, 128, 4), (64, wide, 8), (64, 256, 4)]
    return [
        _config(case, bm, pixels, bk, warps, stages)
        for bm, pixels, warps in tiles
        for bk, depths in ((64, (4, 5)), (128, (2, 3, 4, 5)))
        for stages in depths
        if stages * bk * (bm + pixels) <= 212_992
    ]


KERNEL = Kernel(run=convolution, default=default, space=space)
