"""Sorting in PyTorch: the library's sort, whose values the network must reproduce."""

import torch
from tilebench_core import Kernel


def run(data: torch.Tensor, N: int) -> torch.Tensor:
    """Return data [N] in ascending order."""
    return torch.sort(data).values


KERNEL = Kernel(run=run)
