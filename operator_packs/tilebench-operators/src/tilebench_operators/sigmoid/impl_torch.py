"""Logistic sigmoid in PyTorch: one library call, fp32 inside."""

import torch
from tilebench_core import Kernel


def run(x: torch.Tensor, n: int) -> torch.Tensor:
    """Return 1 / (1 + exp(-x)), x [n]."""
    return torch.sigmoid(x)


KERNEL = Kernel(run=run)
