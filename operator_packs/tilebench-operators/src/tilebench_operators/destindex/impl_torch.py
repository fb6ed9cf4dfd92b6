"""Scatter of token rows in PyTorch."""

import torch
from tilebench_core import Kernel


def run(kv_nope: torch.Tensor, kv_rope: torch.Tensor, dest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return out_nope and out_rope, shaped as kv_nope [T, heads, head_dim] and kv_rope [T, 1, rope_dim]."""
    out_nope, out_rope = torch.empty_like(kv_nope), torch.empty_like(kv_rope)
    return out_nope.index_copy_(0, dest, kv_nope), out_rope.index_copy_(0, dest, kv_rope)


KERNEL = Kernel(run=run)
