"""Block-sparse causal attention in cuTile: a block owns one row block of PACK heads and walks its listed key blocks.

Most of the traffic between the L2 cache and the multiprocessors is keys and values: each block of them is wanted by
three row blocks of every head. Heads that share keys, values and lists are stacked to one tile of PACK·BLOCK_M rows.
"""

import functools
import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

LOG2_E = math.log2(math.e)
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def attention_kernel(
    q, k, v, o, crow, col, crow_stride, col_stride, num_layout, heads, kv_heads, scale,
    D: ct.Constant[int], BLOCK_M: ct.Constant[int], BLOCK_N: ct.Constant[int], PACK: ct.Constant[int],
):  # fmt: skip
    """q, o [B·H, M, D], k, v [B·H_kv, M, D]; crow [num_layout·(rows + 1)], col [num_layout·rows·cols].

    Rows beyond M load as zeros and are not stored; keys beyond M are right of the diagonal of every stored row.
    """
    row, pack = ct.bid(0), ct.bid(1)
    head = pack * PACK
    kv_head = head // heads * kv_heads + head % heads // (heads // kv_heads)
    layout = head % heads % num_layout
    first = ct.load(crow, (layout * crow_stride + row,), ())
    last = ct.load(crow, (layout * crow_stride + row + 1,), ())

    query = ct.load(q, (pack, row, 0), (PACK, BLOCK_M, D), padding_mode=ZERO).reshape((PACK * BLOCK_M, D))
    accumulator = ct.zeros((PACK * BLOCK_M, D), ct.float32)
    # Finite, so that a row without keys yields no inf - inf.
    maximum = ct.full((PACK * BLOCK_M, 1), -1.0e30, ct.float32)
    total = ct.zeros((PACK * BLOCK_M, 1), ct.float32)
    rows = row * BLOCK_M + ct.arange(PACK * BLOCK_M, dtype=ct.int32)[:, None] % BLOCK_M
    for entry in range(first, last):
        n = ct.load(col, (layout * col_stride + entry,), ())
        # In the order (0, 2, 1) the tile of k is transposed on the way.
        key = ct.load(k, (kv_head, 0, n), (1, D, BLOCK_N), order=(0, 2, 1), padding_mode=ZERO).reshape((D, BLOCK_N))
        value = ct.load(v, (kv_head, n, 0), (1, BLOCK_N, D), padding_mode=ZERO).reshape((BLOCK_N, D))
        scores = ct.mma(query, key, ct.zeros((PACK * BLOCK_M, BLOCK_N), ct.float32))
        # Left of the diagonal the mask hides nothing; a branch would cost more than it does.
        visible = rows >= n * BLOCK_N + ct.arange(BLOCK_N, dtype=ct.int32)[None, :]
        scores = ct.where(visible, scores, -math.inf)
        larger = ct.maximum(maximum, ct.max(scores, 1, keepdims=True) * scale)
        p = ct.exp2(scores * scale - larger, flush_to_zero=True)  # `scale` holds log2 e
        shrink = ct.exp2(maximum - larger, flush_to_zero=True)
        total = total * shrink + ct.sum(p, 1, keepdims=True)
        accumulator = ct.mma(p.astype(v.dtype), value, accumulator * shrink)
        maximum = larger
    result = accumulator * (1.0 / ct.where(total > 0.0, total, 1.0))
    ct.store(o, (pack, row, 0), result.astype(o.dtype).reshape((PACK, BLOCK_M, D)))


@functools.cache
def hinted(warps: int, occupancy: int) -> ct.kernel:
    """`attention_kernel` with that many warps for the arithmetic and `occupancy` blocks on a multiprocessor."""
    return attention_kernel.replace_hints(num_worker_warps=warps, occupancy=occupancy)


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout_crow: torch.Tensor, layout_col: torch.Tensor,
    layout_crow_stride: int, layout_col_stride: int, num_layout: int, softmax_scale: float, num_heads: int,
    num_kv_heads: int, M: int, BLOCK_M: int, EVEN_M: bool, BLOCK_N: int, EVEN_N: bool, BLOCK_D: int,
    NUM_D_BLOCKS: int, *, PACK: int, WARPS: int, OCCUPANCY: int,
) -> torch.Tensor:  # fmt: skip
    """Return o [B, H, M, D]; q [B, H, M, D], k and v [B, H_kv, M, D]."""
    if PACK > 1 and (num_layout > 1 or num_heads // num_kv_heads % PACK):
        raise ValueError(f"{PACK} heads do not share their keys and lists")
    o = torch.empty_like(q)
    B, D = q.shape[0], BLOCK_D * NUM_D_BLOCKS
    arguments = (
        *(tensor.view(-1, M, D) for tensor in (q, k, v, o)), layout_crow, layout_col, layout_crow_stride,
        layout_col_stride, num_layout, num_heads, num_kv_heads, softmax_scale * LOG2_E, D, BLOCK_M, BLOCK_N,
        PACK,
    )  # fmt: skip
    grid = (ct.cdiv(M, BLOCK_M), B * num_heads // PACK)
    ct.launch(torch.cuda.current_stream(), grid, hinted(WARPS, OCCUPANCY), arguments)
    return o


def _config(pack: int, warps: int, occupancy: int) -> Config:
    return {"PACK": pack, "WARPS": warps, "OCCUPANCY": occupancy}


def _packs(case: Case) -> list[int]:
    """How many heads can be stacked."""
    group = case["H"] // case["H_kv"]
    return [pack for pack in (1, 2, 4) if case["num_layout"] == 1 and group % pack == 0] or [1]


def default(case: Case) -> Config:
    blocks = -(-case["M"] // case["block"]) * case["B"] * case["H"]
    # As long as two blocks to each of 132 multiprocessors cover all, more of them are faster than larger ones; also where these
    # would need a second round for a few of them.
    large = blocks > 264 and not 528 < blocks <= 792
    return _config(4, 8, 1) if large and 4 in _packs(case) else _config(1, 4, 2)


def space(case: Case) -> list[Config]:
    shapes = [(1, 4, 1), (1, 4, 2), (1, 4, 3), (2, 8, 1), (4, 8, 1)]
    return [_config(*shape) for shape in shapes if shape[0] in _packs(case)]


KERNEL = Kernel(run=run, default=default, space=space)
