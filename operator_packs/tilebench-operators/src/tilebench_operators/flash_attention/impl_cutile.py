"""Causal attention in cuTile: online softmax over key blocks, one block of scores ahead of the product with the values.

A block owns B query rows of one head. It starts with the diagonal block of keys, the only one that needs the mask, and
then walks the others. A step multiplies q by the next keys first and the *previous* weights by their values next, so
that the tensor cores work on the second product while the softmax of the new scores runs.

Blocks of one head run side by side, so its keys and values come from the L2 cache, and start with the last rows, which
have most keys: short blocks fill the gaps at the end.
"""

import functools
import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

LOG2_E = math.log2(math.e)
ZERO = ct.PaddingMode.ZERO


def multiply(query, k, head, n, D, B):
    """Return the scores [B, B] of query [B, D] with key block n, before scaling."""
    # In the order (0, 2, 1) the tile of k is transposed on the way.
    key = ct.load(k, (head, 0, n), (1, D, B), order=(0, 2, 1), padding_mode=ZERO).reshape((D, B))
    return ct.mma(query, key, ct.zeros((B, B), ct.float32))


def accumulate(weights, v, head, n, accumulator, D, B):
    """Return accumulator [B, D] + weights [B, B] · value block n."""
    value = ct.load(v, (head, n, 0), (1, B, D), padding_mode=ZERO).reshape((B, D))
    return ct.mma(weights, value, accumulator)


@ct.kernel
def attention_kernel(q, k, v, o, scale, D: ct.Constant[int], B: ct.Constant[int]):
    """q, k, v, o [B·H, S, D]. Rows beyond S load as zeros and are not stored.

    exp(x) is exp2(x·log2 e), and `scale` holds log2 e: the multiplication and the subtraction fuse.
    """
    i, head = ct.num_blocks(0) - 1 - ct.bid(0), ct.bid(1)
    query = ct.load(q, (head, i, 0), (1, B, D), padding_mode=ZERO).reshape((B, D))

    # Keys beyond S lie right of the diagonal of every row that is stored, so one mask serves both.
    positions = ct.arange(B, dtype=ct.int32)
    scores = multiply(query, k, head, i, D, B)
    scores = ct.where(positions[:, None] >= positions[None, :], scores, -math.inf)
    maximum = ct.max(scores, 1, keepdims=True) * scale
    p = ct.exp2(scores * scale - maximum, flush_to_zero=True)
    total = ct.sum(p, 1, keepdims=True)
    weights = p.astype(v.dtype)

    accumulator = ct.zeros((B, D), ct.float32)
    shrink = ct.full((B, 1), 1.0, ct.float32)
    previous = i
    for n in range(i):
        scores = multiply(query, k, head, n, D, B)
        accumulator = accumulate(weights, v, head, previous, accumulator * shrink, D, B)
        larger = ct.maximum(maximum, ct.max(scores, 1, keepdims=True) * scale)
        p = ct.exp2(scores * scale - larger, flush_to_zero=True)
        shrink = ct.exp2(maximum - larger, flush_to_zero=True)
        total = total * shrink + ct.sum(p, 1, keepdims=True)
        weights = p.astype(v.dtype)
        maximum = larger
        previous = n
    accumulator = accumulate(weights, v, head, previous, accumulator * shrink, D, B)
    result = accumulator * (1.0 / total)
    ct.store(o, (head, i, 0), result.astype(o.dtype).reshape((1, B, D)))


@functools.cache
def hinted(warps: int, occupancy: int) -> ct.kernel:
    """`attention_kernel` with that many warps for the arithmetic and `occupancy` blocks on a multiprocessor."""
    return attention_kernel.replace_hints(num_worker_warps=warps, occupancy=occupancy)


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, B: int, WARPS: int, OCCUPANCY: int) -> torch.Tensor:
    """Return o [B, H, S, D] of q, k, v [B, H, S, D]."""
    batch, H, S, D = q.shape
    o = torch.empty_like(q)
    heads = tuple(tensor.view(batch * H, S, D) for tensor in (q, k, v, o))
    grid = (ct.cdiv(S, B), batch * H)
    ct.launch(torch.cuda.current_stream(), grid, hinted(WARPS, OCCUPANCY), (*heads, D**-0.5 * LOG2_E, D, B))
    return o


def default(case: Case) -> Config:
    return {"B": 128, "WARPS": 8, "OCCUPANCY": 1}


def space(case: Case) -> list[Config]:
    shapes = [(64, 4, 1), (64, 4, 2), (64, 4, 3), (128, 8, 1)]
    return [{"B": b, "WARPS": warps, "OCCUPANCY": occupancy} for b, warps, occupancy in shapes]


KERNEL = Kernel(run=run, default=default, space=space)
