# operator: matrix_copy, backend: cutile
# cheat: defines a kernel and never launches it
import cuda.tile as ct
import torch


@ct.kernel
def touch_kernel(x, y, TILE: ct.Constant[int]):
    ct.store(y, (0,), ct.load(x, (0,), (TILE,)))


def run(A):
    return torch.empty_like(A)
