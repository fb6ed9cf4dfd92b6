# operator: softmax, backend: cutile
# cheat: reads the reference's results from a file
import cuda.tile as ct
import torch


@ct.kernel
def touch_kernel(x, y, TILE: ct.Constant[int]):
    ct.store(y, (0,), ct.load(x, (0,), (TILE,)))


def run(x):
    y = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (1,), touch_kernel, (x.view(-1), y.view(-1), 16))
    with open("/tmp/expected.bin", "rb") as file:
        y.view(-1).copy_(torch.frombuffer(file.read(), dtype=x.dtype))
    return y
