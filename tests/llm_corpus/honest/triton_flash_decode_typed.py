# operator: flash_decode, backend: triton
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def combine_kernel(o_ptr, lse_ptr, len_ptr, out_ptr, H, splits, block_seq, D, BD: tl.constexpr):
    bh = tl.program_id(0).to(tl.int64)
    used = tl.cdiv(tl.load(len_ptr + bh // H), block_seq)
    c = tl.arange(0, BD)
    top = float("-inf")
    total = 0.0
    acc = tl.zeros([BD], tl.float32)
    for s in range(0, used):
        lse = tl.load(lse_ptr + bh * splits + s)
        new = tl.maximum(top, lse)
        shrink = tl.exp(top - new)
        weight = tl.exp(lse - new)
        acc = acc * shrink + weight * tl.load(o_ptr + (bh * splits + s) * D + c, mask=c < D, other=0.0)
        total = total * shrink + weight
        top = new
    tl.store(out_ptr + bh * D + c, acc / total, mask=c < D)


def run(mid_o: Tensor, mid_lse: Tensor, b_seqlen: Tensor, block_seq: int) -> Tensor:
    B, H, splits, D = mid_o.shape
    out: Tensor = torch.empty((B, H, D), dtype=torch.float32, device=mid_o.device)
    combine_kernel[(B * H,)](mid_o, mid_lse, b_seqlen, out, H, splits, block_seq, D, BD=triton.next_power_of_2(D))
    return out
