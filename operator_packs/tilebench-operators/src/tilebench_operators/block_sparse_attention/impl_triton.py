"""Block-sparse causal attention in Triton: a program owns one row block of PACK heads and walks its listed key blocks.

Most of the traffic between the L2 cache and the multiprocessors is keys and values: each block of them is wanted by
three row blocks of every head. Heads that share keys, values and lists are stacked to one tile of PACK·BLOCK_M rows.
Two programs of two warp groups fit on a multiprocessor, if a thread has 128 registers: while one program waits for a
list entry, for the block it names or for a product, the other works. So each ends a product before it begins the next.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel
from triton.tools.tensor_descriptor import TensorDescriptor

from tilebench_operators._triton_dependent import prefetch
from tilebench_operators._triton_wgmma import ended

LOG2_E = 1.4426950408889634


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, k_desc, v_desc, o_desc, crow_ptr, col_ptr, crow_stride, col_stride, M, num_layout, heads, group, scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PACK: tl.constexpr,
    CRAMPED: tl.constexpr,
):  # fmt: skip
    """q, o [B·H, M, D], k, v [B·H_kv, M, D]; crow [num_layout, rows + 1], col [num_layout, rows·cols].

    Rows beyond M load as zeros and are not stored; keys beyond M are right of the diagonal of every stored row.
    """
    row, kv_head = tl.program_id(0), tl.program_id(2)
    # Programs of neighbouring rows start together, and each wants the others' blocks: it brings its own row's to the L2 cache
    # while it reads its list and waits for q. The other heads of a group come later.
    own = row * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]
    lines = (kv_head.to(tl.int64) * M + own) * D + tl.arange(0, D // 64)[None, :] * 64  # of 128 bytes
    wanted = (lines >= 0) & (own < M) & (tl.program_id(1) == 0)
    prefetch(k_ptr + lines, wanted)
    prefetch(v_ptr + lines, wanted)
    head = kv_head * group + tl.program_id(1) * PACK
    layout = head % heads % num_layout
    first = tl.load(crow_ptr + layout * crow_stride + row)
    last = tl.load(crow_ptr + layout * crow_stride + row + 1)
    col_ptr += layout * col_stride
    column = tl.load(col_ptr + first, mask=first < last, other=0)

    index = tl.arange(0, PACK * BLOCK_M)[:, None]
    rows = row * BLOCK_M + index % BLOCK_M
    q_ptr += (head.to(tl.int64) * M + row * BLOCK_M) * D
    # Pointers, because a tile [PACK, BLOCK_M, D] from a descriptor would be reshaped in registers and stay there.
    offsets = (index // BLOCK_M * M + index % BLOCK_M) * D + tl.arange(0, D)[None, :]
    q = tl.load(q_ptr + offsets, mask=rows < M, other=0.0)
    accumulator = tl.zeros([PACK * BLOCK_M, D], tl.float32)
    maximum = tl.full([PACK * BLOCK_M], -1.0e30, tl.float32)  # finite, so that a row without keys yields no inf - inf
    total = tl.zeros([PACK * BLOCK_M], tl.float32)
    for entry in range(first, last):
        n = column * BLOCK_N
        # A step early, so that the loads of the next block need not wait for its number.
        column = tl.load(col_ptr + entry + 1, mask=entry + 1 < last, other=0)
        scores = tl.dot(q, k_desc.load([kv_head, n, 0]).reshape(BLOCK_N, D).T)
        if n == row * BLOCK_M:  # the diagonal block
            scores = tl.where(index % BLOCK_M >= tl.arange(0, BLOCK_N)[None, :], scores, float("-inf"))
        larger = tl.maximum(maximum, tl.max(scores, axis=1) * scale)
        p = tl.exp2(scores * scale - larger[:, None])  # `scale` holds log2 e
        shrink = tl.exp2(maximum - larger)
        total = total * shrink + tl.sum(p, axis=1)
        v = v_desc.load([kv_head, n, 0]).reshape(BLOCK_N, D)
        accumulator = tl.dot(p.to(v.dtype), v, accumulator * shrink[:, None])
        if CRAMPED:  # weights, scores of the next block and sums do not fit into 128 registers
            accumulator = ended(accumulator)
        maximum = larger
    o = accumulator * (1.0 / tl.where(total > 0, total, 1.0))[:, None]
    o_desc.store([head, row * BLOCK_M, 0], o.to(o_desc.dtype).reshape(PACK, BLOCK_M, D))


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout_crow: torch.Tensor, layout_col: torch.Tensor,
    layout_crow_stride: int, layout_col_stride: int, num_layout: int, softmax_scale: float, num_heads: int,
    num_kv_heads: int, M: int, BLOCK_M: int, EVEN_M: bool, BLOCK_N: int, EVEN_N: bool, BLOCK_D: int,
    NUM_D_BLOCKS: int, *, PACK: int, num_warps: int, num_stages: int, maxnreg: int | None,
) -> torch.Tensor:  # fmt: skip
    """Return o [B, H, M, D]; q [B, H, M, D], k and v [B, H_kv, M, D]."""
    if PACK > 1 and (num_layout > 1 or num_heads // num_kv_heads % PACK):
        raise ValueError(f"{PACK} heads do not share their keys and lists")
    o = torch.empty_like(q)
    B, D = q.shape[0], BLOCK_D * NUM_D_BLOCKS
    k_desc, v_desc, o_desc = (
        TensorDescriptor.from_tensor(tensor.view(-1, M, D), [heads, rows, D])
        for tensor, heads, rows in ((k, 1, BLOCK_N), (v, 1, BLOCK_N), (o, PACK, BLOCK_M))
    )
    group = num_heads // num_kv_heads
    attention_kernel[(triton.cdiv(M, BLOCK_M), group // PACK, B * num_kv_heads)](
        q, k, v, k_desc, v_desc, o_desc, layout_crow, layout_col, layout_crow_stride, layout_col_stride,
        M, num_layout, num_heads, group, softmax_scale * LOG2_E, D=D, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
        PACK=PACK, CRAMPED=maxnreg is not None, num_warps=num_warps, num_stages=num_stages, maxnreg=maxnreg,
    )  # fmt: skip
    return o


def _config(pack: int, warps: int, stages: int, registers: int | None = None) -> Config:
    return {"PACK": pack, "num_warps": warps, "num_stages": stages, "maxnreg": registers}


def _packs(case: Case) -> list[int]:
    """How many heads can be stacked."""
    group = case["H"] // case["H_kv"]
    return [pack for pack in (1, 2, 4) if case["num_layout"] == 1 and group % pack == 0] or [1]


def default(case: Case) -> Config:
    blocks = -(-case["M"] // case["block"]) * case["B"] * case["H"]
    # Two programs to each of 132 multiprocessors come first, then larger ones; but not where these would need a second round
    # for a few of them.
    pair = blocks > 264 and not 528 < blocks <= 792
    return _config(2, 8, 2, 128) if pair and 2 in _packs(case) else _config(1, 4, 3)


def space(case: Case) -> list[Config]:
    shapes = [(1, 4, 2), (1, 4, 3), (2, 4, 2), (2, 8, 2), (2, 8, 2, 128), (2, 8, 3), (4, 8, 2), (4, 16, 2), (4, 16, 3)]
    return [_config(*shape) for shape in shapes if shape[0] in _packs(case)]


KERNEL = Kernel(run=run, default=default, space=space)
