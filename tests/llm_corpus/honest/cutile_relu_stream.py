# operator: relu, backend: cutile
import cuda.tile as ct
import torch


def maximum(t, zero):
    """Not torch.maximum: a helper that the kernel inlines."""
    return ct.maximum(t, zero, propagate_nan=True) if t.dtype != ct.int8 else ct.maximum(t, zero)


@ct.kernel
def relu_kernel(x, y, TILE: ct.Constant[int]):
    i = ct.bid(0)
    t = ct.load(x, (i,), (TILE,))
    ct.store(y, (i,), maximum(t, ct.zeros((TILE,), x.dtype)))


def relu(x):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    stream = torch.cuda.current_stream(x.device)
    ct.launch(stream, (ct.cdiv(x.shape[0], 2048),), relu_kernel, (x, y, 2048))
    return y


def run(x):
    return relu(x)
