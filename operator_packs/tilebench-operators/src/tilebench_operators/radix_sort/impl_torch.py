"""Sorting integers in PyTorch: the library's sort."""

import torch
from tilebench_core import Kernel


def run(data: torch.Tensor) -> torch.Tensor:
    """Return data [n] in ascending order."""
    return torch.sort(data).values


KERNEL = Kernel(run=run)
