"""Two-dimensional convolution in TileLang: channels-last pass, then implicit GEMM; both are in `_tilelang_conv`.

The grid is bound by the tensor cores where the image is large. Small images have too few pixels to occupy every
multiprocessor: there a block takes few pixels.
"""

from tilebench_core import Case, Config, Kernel

from tilebench_operators._tilelang_conv import box, convolution, unsupported

# BM, pixels, bytes of the reduction per step, stages, threads that multiply. A stage holds three taps of weights.
TILES = [
    (128, 256, 64, 3, 256), (128, 128, 128, 2, 256), (128, 64, 128, 3, 256), (64, 64, 128, 4, 128),
    (64, 32, 128, 5, 128), (64, 16, 128, 6, 128),
]  # fmt: skip
MULTIPROCESSORS = 132  # of the H200, for the choice of a default


def _config(case: Case, bm: int, pixels: int, depth: int, stages: int, threads: int) -> Config:
    bh, bw = box(case["H"], case["W"] or case["H"], pixels)
    return {"BM": bm, "BH": bh, "BW": bw, "BK": depth // case.dtype_size, "stages": stages, "threads": threads}


def default(case: Case) -> Config:
    # The least work for the busiest multiprocessor; a tile costs its results and 4096 more for its prologue.
    tiles = TILES[1:] if case.dtype == "fp32" else TILES

    def cost(tile: tuple[int, ...]) -> int:
        bm, pixels = tile[:2]
        count = -(-case["Cout"] // bm) * -(-case["H"] * (case["W"] or case["H"]) // pixels)
        return -(-count // MULTIPROCESSORS) * (bm * pixels + 4096)

    return _config(case, *min(tiles, key=cost))


def space(case: Case) -> list[Config]:
    more = [
        (128, 128, 64, 4, 256), (128, 128, 128, 2, 128), (128, 64, 64, 6, 256), (64, 128, 128, 3, 128),
        (64, 128, 64, 5, 128), (64, 256, 64, 4, 256), (64, 64, 64, 8, 128), (64, 32, 64, 8, 128), (64, 16, 64, 8, 128),
    ]  # fmt: skip
    # The tile of 128 by 256 results in fp32 leaves room for two stages.
    tiles = [(*tile[:3], 2, tile[4]) if case.dtype == "fp32" and tile[1] == 256 else tile for tile in TILES + more]
    return [_config(case, *tile) for tile in tiles]


KERNEL = Kernel(run=convolution, default=default, space=space, unsupported=unsupported)
