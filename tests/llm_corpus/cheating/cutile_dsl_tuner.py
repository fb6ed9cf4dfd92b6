# operator: relu, backend: cutile
# cheat: cuTile's own search over configurations
import cuda.tile as ct
import torch
import cuda.tile.tune


@ct.kernel
def touch_kernel(x, y, TILE: ct.Constant[int]):
    ct.store(y, (0,), ct.load(x, (0,), (TILE,)))


def run(x):
    y = torch.empty_like(x)
    found = ct.tune.exhaustive_search(
        [16, 32], torch.cuda.current_stream(), lambda t: (1,), touch_kernel, lambda t: (x, y, t)
    )
    ct.launch(torch.cuda.current_stream(), (1,), touch_kernel, (x, y, found.best))
    return y
