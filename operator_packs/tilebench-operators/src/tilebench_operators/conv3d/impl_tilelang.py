"""Three-dimensional convolution in TileLang: channels-last pass, then implicit GEMM; both are in `_tilelang_conv`.

Each value of x meets only 64 output channels per load, and 27 taps want it, so that L2 bandwidth would be the limit: a block takes
all 64 channels and many pixels, and a step the three taps of a column, which share their rows of x.
"""

from tilebench_core import Case, Config, Kernel

from tilebench_operators._tilelang_conv import box, convolution, unsupported


def _config(case: Case, bm: int, pixels: int, depth: int, stages: int, threads: int) -> Config:
    bh, bw = box(case["H"], case["W"] or case["H"], pixels)
    return {"BM": bm, "BH": bh, "BW": bw, "BK": depth // case.dtype_size, "stages": stages, "threads": threads}


def default(case: Case) -> Config:
    # BM, pixels, bytes of the reduction per step, stages, threads that multiply.
    pixels = case["D"] * case["H"] * (case["W"] or case["H"])
    if pixels >= 132 * 256:
        return _config(case, 64, 256, 128, 3 if case.dtype == "fp16" else 2, 256)
    return _config(case, 64, 128 if pixels >= 132 * 128 else 64, 128, 4, 128)


def space(case: Case) -> list[Config]:
    tiles = [
        (64, 64, 128, 4, 128), (64, 64, 64, 6, 128), (64, 128, 128, 3, 128), (64, 128, 128, 4, 128),
        (64, 128, 64, 6, 128), (64, 128, 128, 4, 256), (64, 256, 128, 2, 128), (64, 256, 128, 2, 256),
        (64, 256, 64, 4, 128), (64, 256, 64, 4, 256), (64, 256, 64, 5, 256),
    ]  # fmt: skip
    if case.dtype == "fp16":
        tiles += [(64, 256, 128, 3, 128), (64, 256, 128, 3, 256), (64, 512, 64, 3, 256)]
    return [_config(case, *tile) for tile in tiles]


KERNEL = Kernel(run=convolution, default=default, space=space, unsupported=unsupported)
