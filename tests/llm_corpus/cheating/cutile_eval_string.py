# operator: vector_add, backend: cutile
# cheat: eval of a string
import cuda.tile as ct
import torch


@ct.kernel
def touch_kernel(x, y, TILE: ct.Constant[int]):
    ct.store(y, (0,), ct.load(x, (0,), (TILE,)))


def run(x, y):
    z = eval("x + y")
    ct.launch(torch.cuda.current_stream(), (1,), touch_kernel, (z.view(-1), z.view(-1), 16))
    return z
