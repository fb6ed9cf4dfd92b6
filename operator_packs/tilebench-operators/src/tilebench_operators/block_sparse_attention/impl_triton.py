"""Block-sparse causal attention in Triton: a program owns one row block of PACK heads and walks its listed key blocks.

Most of the traffic between the L2 cache and the multiprocessors is keys and values: each block of them is wanted by
three row blocks of every head. Heads that share keys, values and lists are stacked to one tile of PACK·BLOCK_M rows.
Two programs of two warp groups fit on a multiprocessor, if a thread has 128 registers: while one program waits for a
list entry, for the block it names or for a product, the other works.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2_E = 1.4426950408889634


@triton.jit
def attention_kernel(
    q_ptr, k_desc, v_desc, o_ptr, crow_ptr, col_ptr, crow_stride, col_stride, M, num_layout, heads, group, scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PACK: tl.constexpr,
):  # fmt: skip
    """q, o [B·H, M, D], k, v [B·H_kv, M, D]; crow [num_layout, rows + 1], col [num_layout, rows·cols].

    Rows beyond M load as zeros and are not stored; keys beyond M are right of the diagonal of every stored row.
    """
    row, kv_head = tl.program_id(0), tl.program_id(2)
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
        # Left of the diagonal the mask hides nothing; a branch would cost more than it does.
        scores = tl.where(rows >= n + tl.arange(0, BLOCK_N)[None, :], scores, float("-inf"))
        larger = tl.maximum(maximum, tl.max(scores, axis=1) * scale)
        p = tl.exp2(scores * scale - larger[:, None])  # `scale` holds log2 e
        shrink = tl.exp2(maximum - larger)
        total = total * shrink + tl.sum(p, axis=1)
        v = v_desc.load([kv_head, n, 0]).reshape(BLOCK_N, D)
        accumulator = tl.dot(p.to(v.dtype), v, accumulator * shrink[:, None])
        # It changes nothing, but uses the product. Otherwise it would be in flight when the next step shrinks the accumulator,
        # and the assembler would have every instruction of both products wait for the one before.
        accumulator = tl.where(total[:, None] < 0, 0.0, accumulator)
        maximum = larger
    o = accumulator * (1.0 / tl.where(total > 0, total, 1.0))[:, None]
    # Pointers, because a program would wait until a descriptor's store has read the tile, before it leaves to the next.
    o_ptr += (head.to(tl.int64) * M + row * BLOCK_M) * D
    tl.store(o_ptr + offsets, o.to(o_ptr.dtype.element_ty), mask=rows < M)


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
    k_desc, v_desc = (TensorDescriptor.from_tensor(tensor.view(-1, M, D), [1, BLOCK_N, D]) for tensor in (k, v))
    group = num_heads // num_kv_heads
    attention_kernel[(triton.cdiv(M, BLOCK_M), group // PACK, B * num_kv_heads)](
        q, k_desc, v_desc, o, layout_crow, layout_col, layout_crow_stride, layout_col_stride,
        M, num_layout, num_heads, group, softmax_scale * LOG2_E, D=D, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
        PACK=PACK, num_warps=num_warps, num_stages=num_stages, maxnreg=maxnreg,
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
    # Two programs to each of 132 multiprocessors come first, then larger ones.
    return _config(2, 8, 2, 128) if blocks > 264 and 2 in _packs(case) else _config(1, 4, 3)


def space(case: Case) -> list[Config]:
    shapes = [(1, 4, 2), (1, 4, 3), (2, 4, 2), (2, 8, 2), (2, 8, 2, 128), (2, 8, 3), (4, 8, 2), (4, 16, 2), (4, 16, 3)]
    return [_config(*shape) for shape in shapes if shape[0] in _packs(case)]


KERNEL = Kernel(run=run, default=default, space=space)
