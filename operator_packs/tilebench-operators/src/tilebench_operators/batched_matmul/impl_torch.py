"""Batched matrix multiplication in PyTorch: one library call on views of the flat operands."""

import torch
from tilebench_core import Kernel


def run(a: torch.Tensor, b: torch.Tensor, BATCH: int, M: int, N: int, K: int) -> torch.Tensor:
    """Return c [BATCH·M·N] of a [BATCH·M·K] and b [BATCH·K·N], in their dtype."""
    return torch.bmm(a.view(BATCH, M, K), b.view(BATCH, K, N)).view(-1)


KERNEL = Kernel(run=run)
