"""Mean over the last axis in PyTorch: one library call that adds up and returns fp32."""

import torch
from tilebench_core import Kernel


def run(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the mean of x [M, N] over its last axis (`dim` is 1), [M] fp32."""
    return torch.mean(x, dim=dim, dtype=torch.float32)


KERNEL = Kernel(run=run)
