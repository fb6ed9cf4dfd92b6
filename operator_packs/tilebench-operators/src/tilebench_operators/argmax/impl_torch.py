"""Index of the maximum over the last axis in PyTorch: one library call, which documents the first index on ties."""

import torch
from tilebench_core import Kernel


def run(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the index of the maximum of x [M, N] over its last axis (`dim` is 1), the lowest on ties, [M] int64."""
    return torch.argmax(x, dim=dim)


KERNEL = Kernel(run=run)
