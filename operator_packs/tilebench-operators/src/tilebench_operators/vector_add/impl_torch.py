"""Vector addition in PyTorch."""

import torch
from tilebench_core import Kernel


def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return x + y, both [n]."""
    return torch.add(x, y)


KERNEL = Kernel(run=run)
