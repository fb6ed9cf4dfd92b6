"""Reversal of an array in PyTorch."""

import torch
from tilebench_core import Kernel


def run(x: torch.Tensor) -> torch.Tensor:
    """Return x [n] in reverse order."""
    return torch.flip(x, (0,))


KERNEL = Kernel(run=run)
