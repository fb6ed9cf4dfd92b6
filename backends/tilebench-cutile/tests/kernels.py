"""Small cuTile kernels for the tests, as a kernel file would define them: `KERNEL` is the good one."""

import cuda.tile as ct
import torch
from tilebench_core import Kernel


@ct.kernel
def scale_kernel(x, y, TILE: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (TILE,)) * 2)


@ct.kernel
def large_kernel(a, b, c, TILE: ct.Constant[int]):
    accumulator = ct.zeros((128, TILE), ct.float32)
    for k in range(ct.num_tiles(a, 1, (128, 64))):
        accumulator = ct.mma(ct.load(a, (0, k), (128, 64)), ct.load(b, (k, 0), (64, TILE)), accumulator)
    ct.store(c, (0, 0), accumulator.astype(c.dtype))


@ct.kernel
def static_kernel(x, y, pair: tuple[int, int]):
    ct.store(y, (pair[0],), ct.load(x, (pair[1],), (64,)))


@ct.kernel
def narrowing_kernel(x, y):
    ct.store(y, (0,), ct.load(x, (0,), (64,)))  # fp32 into fp16 without a cast


def launch(kernel: ct.kernel, *arguments: object) -> None:
    ct.launch(torch.cuda.current_stream(), (1,), kernel, arguments)


def scale(x: torch.Tensor, *, TILE: int) -> torch.Tensor:
    y = torch.empty_like(x)
    launch(scale_kernel, x, y, TILE)
    return y


KERNEL = Kernel(run=scale)
