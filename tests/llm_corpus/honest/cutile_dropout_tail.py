# operator: dropout, backend: cutile
import cuda.tile as ct
import torch


@ct.kernel
def dropout_kernel(x, keep, y, scale, TILE: ct.Constant[int]):
    i, full = ct.bid(0), x.shape[0] // TILE
    if i < full:
        end = ct.assume_divisible_by(full * TILE, TILE)
        t = ct.load(x.slice(0, 0, end), (i,), (TILE,)).astype(ct.float32)
        k = ct.load(keep.slice(0, 0, end), (i,), (TILE,))
        ct.store(y.slice(0, 0, end), (i,), ct.where(k != 0, t * scale, 0.0).astype(y.dtype))
    else:
        t = ct.load(x, (i,), (TILE,)).astype(ct.float32)
        k = ct.load(keep, (i,), (TILE,))
        ct.store(y, (i,), ct.where(k != 0, t * scale, 0.0).astype(y.dtype))


def dropout(x, keep, p, *, tile=1024):
    if not 0.0 <= p < 1.0:
        raise ValueError(f"p is {p}; expected a share below 1")
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.numel(), tile),), dropout_kernel, (x, keep, y, 1 / (1 - p), tile))
    return y


def run(x, keep, p):
    return dropout(x, keep, p)
