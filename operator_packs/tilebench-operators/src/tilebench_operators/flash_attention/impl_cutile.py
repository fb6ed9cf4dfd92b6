"""Causal attention in cuTile: online softmax over key blocks, TMA loads, the causal mask on diagonal blocks only.

A block owns BM query rows of one head. Blocks of one head run side by side, so its keys and values come from the L2
cache, and start with the last rows, which have most keys: short blocks fill the gaps at the end.
"""

import functools
import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

LOG2_E = math.log2(math.e)
ZERO = ct.PaddingMode.ZERO


def absorb(scores, v, accumulator, maximum, total, scale):
    """Add one key block: scores [BM, BN] before scaling, v [BN, D]; accumulator [BM, D], maximum, total [BM, 1], fp32.

    exp(x) is exp2(x·log2 e), and `scale` holds log2 e: the multiplication and the subtraction fuse.
    """
    larger = ct.maximum(maximum, ct.max(scores, 1, keepdims=True) * scale)
    p = ct.exp2(scores * scale - larger, flush_to_zero=True)
    shrink = ct.exp2(maximum - larger, flush_to_zero=True)
    total = total * shrink + ct.sum(p, 1, keepdims=True)
    return ct.mma(p.astype(v.dtype), v, accumulator * shrink), larger, total


@ct.kernel
def attention_kernel(q, k, v, o, scale, D: ct.Constant[int], BM: ct.Constant[int], BN: ct.Constant[int]):
    """q, k, v, o [B·H, S, D]; BM is a multiple of BN. Rows beyond S load as zeros and are not stored."""
    i, head = ct.num_blocks(0) - 1 - ct.bid(0), ct.bid(1)
    query = ct.load(q, (head, i, 0), (1, BM, D), padding_mode=ZERO).reshape((BM, D))
    accumulator = ct.zeros((BM, D), ct.float32)
    maximum = ct.full((BM, 1), -math.inf, ct.float32)
    total = ct.zeros((BM, 1), ct.float32)

    for n in range(i * (BM // BN)):
        # In the order (0, 2, 1) the tile of k is transposed on the way.
        key = ct.load(k, (head, 0, n), (1, D, BN), order=(0, 2, 1), padding_mode=ZERO).reshape((D, BN))
        scores = ct.mma(query, key, ct.zeros((BM, BN), ct.float32))
        value = ct.load(v, (head, n, 0), (1, BN, D), padding_mode=ZERO).reshape((BN, D))
        accumulator, maximum, total = absorb(scores, value, accumulator, maximum, total, scale)

    # Keys beyond S lie right of the diagonal of every row that is stored, so one mask serves both.
    rows = i * BM + ct.arange(BM, dtype=ct.int32)[:, None]
    for part in ct.static_iter(range(BM // BN)):
        # A block of keys that lies entirely beyond S must not be loaded; the last one before it takes its place, and
        # the mask hides all of it.
        n = i * (BM // BN) + part
        held = ct.minimum(n, ct.cdiv(k.shape[1], BN) - 1)
        key = ct.load(k, (head, 0, held), (1, D, BN), order=(0, 2, 1), padding_mode=ZERO).reshape((D, BN))
        scores = ct.mma(query, key, ct.zeros((BM, BN), ct.float32))
        visible = rows >= n * BN + ct.arange(BN, dtype=ct.int32)[None, :]
        value = ct.load(v, (head, held, 0), (1, BN, D), padding_mode=ZERO).reshape((BN, D))
        accumulator, maximum, total = absorb(
            ct.where(visible, scores, -math.inf), value, accumulator, maximum, total, scale
        )
    result = accumulator * (1.0 / total)
    ct.store(o, (head, i, 0), result.astype(o.dtype).reshape((1, BM, D)))


@functools.cache
def hinted(warps: int, occupancy: int) -> ct.kernel:
    """`attention_kernel` with that many warps for the arithmetic and `occupancy` blocks on a multiprocessor."""
    return attention_kernel.replace_hints(num_worker_warps=warps, occupancy=occupancy)


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, BM: int, BN: int, WARPS: int, OCCUPANCY: int
) -> torch.Tensor:
    """Return o [B, H, S, D] of q, k, v [B, H, S, D]."""
    B, H, S, D = q.shape
    o = torch.empty_like(q)
    heads = tuple(tensor.view(B * H, S, D) for tensor in (q, k, v, o))
    arguments = (*heads, D**-0.5 * LOG2_E, D, BM, BN)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(S, BM), B * H), hinted(WARPS, OCCUPANCY), arguments)
    return o


def _config(BM: int, BN: int, warps: int, occupancy: int) -> Config:
    return {"BM": BM, "BN": BN, "WARPS": warps, "OCCUPANCY": occupancy}


def default(case: Case) -> Config:
    return _config(128, 128, 8, 1)


def space(case: Case) -> list[Config]:
    return [
        _config(*shape)
        for shape in [
            (64, 64, 4, 1), (64, 64, 4, 2), (64, 128, 4, 1), (128, 64, 4, 1), (128, 64, 4, 2), (128, 64, 8, 1),
            (128, 128, 4, 1), (128, 128, 8, 1), (256, 64, 8, 1),
        ]
    ]  # fmt: skip


KERNEL = Kernel(run=run, default=default, space=space)
