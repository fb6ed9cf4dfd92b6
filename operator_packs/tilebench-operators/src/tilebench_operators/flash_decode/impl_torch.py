"""Combining split-KV partial outputs in PyTorch: a masked softmax over the splits, then a batched product."""

import torch
from tilebench_core import Kernel


def run(mid_o: torch.Tensor, mid_lse: torch.Tensor, b_seqlen: torch.Tensor, block_seq: int) -> torch.Tensor:
    """Return o [B, H, D]; mid_o [B, H, splits, D], mid_lse [B, H, splits], b_seqlen [B] int32."""
    B, H, splits, D = mid_o.shape
    starts = torch.arange(0, splits * block_seq, block_seq, dtype=torch.int32, device=mid_o.device)
    unused = starts >= b_seqlen[:, None, None]  # [B, 1, splits]: splits that begin beyond the sequence
    weights = torch.softmax(mid_lse.masked_fill(unused, float("-inf")), dim=-1)
    return torch.bmm(weights.view(B * H, 1, splits), mid_o.view(B * H, splits, D)).view(B, H, D)


KERNEL = Kernel(run=run)
