"""Three-dimensional convolution in Triton: channels-last pass, then implicit GEMM; both are in `tilebench_operators._conv_pairs`.

Each value of x meets 64 output channels per load and 27 taps load it, so that L2 bandwidth is the limit: a program takes all
64 channels and as many pixels as its registers hold, and its even and odd rows share what they read.
"""

import triton
from tilebench_core import Case, Config, Kernel

from tilebench_operators._conv import box
from tilebench_operators._conv_pairs import convolution


def _config(case: Case, bm: int, pixels: int, bk: int, warps: int, stages: int) -> Config:
    """`pixels` are those of the even rows: the odd ones have as many. `bk`: bytes of reduction per step."""
    br, bw = box(triton.cdiv(case["H"], 2), case["W"] or case["H"], pixels)
    return {"BM": bm, "BR": br, "BW": bw, "BK": bk // case.dtype_size, "num_warps": warps, "num_stages": stages}


def default(case: Case) -> Config:
    # Two programs share a multiprocessor's shared memory: one multiplies while the other waits.
    pixels = case["D"] * case["H"] * (case["W"] or case["H"])
    if pixels >= 264 * 256:
        return _config(case, 64, 128, 64, 4, 2)
    if pixels >= 132 * 128:
        return _config(case, 64, 64, 128, 4, 2)
    return _config(case, 64, 32 if pixels >= 132 * 64 else 16, 128, 4, 4)


def space(case: Case) -> list[Config]:
    # Of 8 warps' tiles of 64 channels ptxas serializes the products.
    return [
        _config(case, 64, pixels, bk, 4, stages)
        for pixels in (16, 32, 64, 128)
        for bk in (64, 128)
        for stages in (2, 3, 4, 5)
        if stages * bk * (3 * 64 + 4 * pixels) <= 212_992
    ]


KERNEL = Kernel(run=convolution, default=default, space=space)
