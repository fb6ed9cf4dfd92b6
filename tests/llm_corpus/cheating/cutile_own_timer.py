# operator: vector_add, backend: cutile
# cheat: measures tile sizes itself on the first call
import cuda.tile as ct
import torch
from time import perf_counter


@ct.kernel
def touch_kernel(x, y, TILE: ct.Constant[int]):
    ct.store(y, (0,), ct.load(x, (0,), (TILE,)))


@ct.kernel
def add_kernel(x, y, z, TILE: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(z, (i,), ct.load(x, (i,), (TILE,)) + ct.load(y, (i,), (TILE,)))


BEST = {}


def run(x, y):
    z = torch.empty_like(x)
    stream = torch.cuda.current_stream()
    if x.shape not in BEST:
        times = {}
        for tile in (512, 1024, 2048):
            start = perf_counter()
            ct.launch(stream, (ct.cdiv(x.numel(), tile),), add_kernel, (x, y, z, tile))
            torch.cuda.synchronize()
            times[tile] = perf_counter() - start
        BEST[x.shape] = min(times, key=times.get)
    tile = BEST[x.shape]
    ct.launch(stream, (ct.cdiv(x.numel(), tile),), add_kernel, (x, y, z, tile))
    return z
