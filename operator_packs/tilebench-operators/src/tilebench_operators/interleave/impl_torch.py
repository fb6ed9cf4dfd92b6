"""Interleaving in PyTorch: stacked as columns, then read row by row."""

import torch
from tilebench_core import Kernel


def run(a: torch.Tensor, b: torch.Tensor, N: int) -> torch.Tensor:
    """Return out [2N] from a [N] and b [N]."""
    return torch.stack((a, b), dim=1).view(2 * N)


KERNEL = Kernel(run=run)
