"""Causal attention in Triton: online softmax over key blocks, TMA loads, the causal mask on diagonal blocks only.

A program owns BM query rows of one head. Programs of one head run side by side, so its keys and values come from the L2
cache, and start with the last rows, which have most keys: short programs fill the gaps at the end.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2_E = 1.4426950408889634


@triton.jit
def absorb(scores, v, accumulator, maximum, total, scale):
    """Add one key block: scores [BM, BN] before scaling, v [BN, D]; accumulator [BM, D], maximum and total [BM], fp32.

    exp(x) is exp2(x·log2 e), and `scale` holds log2 e: the multiplication and the subtraction fuse.
    """
    larger = tl.maximum(maximum, tl.max(scores, axis=1) * scale)
    p = tl.exp2(scores * scale - larger[:, None])
    shrink = tl.exp2(maximum - larger)
    total = total * shrink + tl.sum(p, axis=1)
    accumulator = tl.dot(p.to(v.dtype), v, accumulator * shrink[:, None])
    return accumulator, larger, total


@triton.jit
def attention_kernel(
    q_desc, k_desc, v_desc, o_desc, S, scale,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """q, k, v, o [B·H, S, D]; BM is a multiple of BN. Rows beyond S load as zeros and are not stored."""
    top = (tl.num_programs(0) - 1 - tl.program_id(0)) * BM
    head = tl.program_id(1)
    q = q_desc.load([head, top, 0]).reshape(BM, D)
    accumulator = tl.zeros([BM, D], tl.float32)
    maximum = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)

    for n in range(0, top, BN):
        scores = tl.dot(q, k_desc.load([head, n, 0]).reshape(BN, D).T)
        v = v_desc.load([head, n, 0]).reshape(BN, D)
        accumulator, maximum, total = absorb(scores, v, accumulator, maximum, total, scale)

    # Keys beyond S lie right of the diagonal of every row that is stored, so one mask serves both.
    rows = top + tl.arange(0, BM)
    for part in tl.static_range(BM // BN):
        n = top + part * BN
        scores = tl.dot(q, k_desc.load([head, n, 0]).reshape(BN, D).T)
        visible = rows[:, None] >= n + tl.arange(0, BN)[None, :]
        v = v_desc.load([head, n, 0]).reshape(BN, D)
        accumulator, maximum, total = absorb(
            tl.where(visible, scores, float("-inf")), v, accumulator, maximum, total, scale
        )
    o = accumulator / total[:, None]
    o_desc.store([head, top, 0], o.to(o_desc.dtype).reshape(1, BM, D))


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, BM: int, BN: int, num_warps: int, num_stages: int
) -> torch.Tensor:
    """Return o [B, H, S, D] of q, k, v [B, H, S, D]."""
    B, H, S, D = q.shape
    o = torch.empty_like(q)
    q_desc, k_desc, v_desc, o_desc = (
        TensorDescriptor.from_tensor(tensor.view(B * H, S, D), [1, rows, D])
        for tensor, rows in ((q, BM), (k, BN), (v, BN), (o, BM))
    )
    attention_kernel[(triton.cdiv(S, BM), B * H)](
        q_desc, k_desc, v_desc, o_desc, S, D**-0.5 * LOG2_E, D=D, BM=BM, BN=BN,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return o


def _config(BM: int, BN: int, warps: int, stages: int) -> Config:
    return {"BM": BM, "BN": BN, "num_warps": warps, "num_stages": stages}


def default(case: Case) -> Config:
    return _config(128, 128, 8, 3)


def space(case: Case) -> list[Config]:
    shapes = [(64, 64, 4), (64, 32, 4), (128, 32, 4), (128, 64, 4), (128, 64, 8), (128, 128, 8)]
    return [
        _config(bm, bn, warps, stages) for bm, bn, warps in shapes for stages in ((2, 3) if bn == 128 else (2, 3, 4))
    ]


KERNEL = Kernel(run=run, default=default, space=space)
