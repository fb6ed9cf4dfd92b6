"""Block-sparse causal attention in Triton: a program owns one row block of one head and walks its listed key blocks.

The blocks are 64 × 64, so a program is small (four warps), and several share a multiprocessor, which hides the waits
for a list entry and then for the block that it names. D is one tile: two halves would only need more instructions.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2_E = 1.4426950408889634


@triton.jit
def attention_kernel(
    q_desc, k_desc, v_desc, o_desc, crow_ptr, col_ptr, crow_stride, col_stride, num_layout, heads, kv_heads, scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """q, o [B·H, M, D], k, v [B·H_kv, M, D]; crow [num_layout, rows + 1], col [num_layout, rows·cols].

    Rows beyond M load as zeros and are not stored; keys beyond M are right of the diagonal of every stored row.
    """
    row, head = tl.program_id(0), tl.program_id(1)
    kv_head = head // heads * kv_heads + head % heads // (heads // kv_heads)
    layout = head % heads % num_layout
    first = tl.load(crow_ptr + layout * crow_stride + row)
    last = tl.load(crow_ptr + layout * crow_stride + row + 1)
    col_ptr += layout * col_stride

    q = q_desc.load([head, row * BLOCK_M, 0]).reshape(BLOCK_M, D)
    accumulator = tl.zeros([BLOCK_M, D], tl.float32)
    maximum = tl.full([BLOCK_M], -1.0e30, tl.float32)  # finite, so that a row without keys yields no inf - inf
    total = tl.zeros([BLOCK_M], tl.float32)
    rows = row * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    for entry in range(first, last):
        n = tl.load(col_ptr + entry) * BLOCK_N
        k = k_desc.load([kv_head, n, 0]).reshape(BLOCK_N, D)
        v = v_desc.load([kv_head, n, 0]).reshape(BLOCK_N, D)
        scores = tl.dot(q, k.T)
        if n + BLOCK_N > row * BLOCK_M:  # the diagonal block
            scores = tl.where(rows >= n + tl.arange(0, BLOCK_N)[None, :], scores, float("-inf"))
        larger = tl.maximum(maximum, tl.max(scores, axis=1) * scale)
        p = tl.exp2(scores * scale - larger[:, None])  # `scale` holds log2 e
        shrink = tl.exp2(maximum - larger)
        total = total * shrink + tl.sum(p, axis=1)
        accumulator = tl.dot(p.to(v.dtype), v, accumulator * shrink[:, None])
        maximum = larger
    o = accumulator / tl.where(total > 0, total, 1.0)[:, None]
    o_desc.store([head, row * BLOCK_M, 0], o.to(o_desc.dtype).reshape(1, BLOCK_M, D))


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout_crow: torch.Tensor, layout_col: torch.Tensor,
    layout_crow_stride: int, layout_col_stride: int, num_layout: int, softmax_scale: float, num_heads: int,
    num_kv_heads: int, M: int, BLOCK_M: int, EVEN_M: bool, BLOCK_N: int, EVEN_N: bool, BLOCK_D: int,
    NUM_D_BLOCKS: int, *, num_warps: int, num_stages: int,
) -> torch.Tensor:  # fmt: skip
    """Return o [B, H, M, D]; q [B, H, M, D], k and v [B, H_kv, M, D]."""
    o = torch.empty_like(q)
    B, D = q.shape[0], BLOCK_D * NUM_D_BLOCKS
    q_desc, k_desc, v_desc, o_desc = (
        TensorDescriptor.from_tensor(tensor.view(-1, M, D), [1, rows, D])
        for tensor, rows in ((q, BLOCK_M), (k, BLOCK_N), (v, BLOCK_N), (o, BLOCK_M))
    )
    attention_kernel[(triton.cdiv(M, BLOCK_M), B * num_heads)](
        q_desc, k_desc, v_desc, o_desc, layout_crow, layout_col, layout_crow_stride, layout_col_stride,
        num_layout, num_heads, num_kv_heads, softmax_scale * LOG2_E, D=D, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return o


def default(case: Case) -> Config:
    return {"num_warps": 4, "num_stages": 2}


def space(case: Case) -> list[Config]:
    return [{"num_warps": warps, "num_stages": stages} for warps in (4, 8) for stages in (1, 2, 3, 4)]


KERNEL = Kernel(run=run, default=default, space=space)
