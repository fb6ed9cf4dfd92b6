"""Matrix transposition in PyTorch."""

import torch
from tilebench_core import Kernel


def run(x: torch.Tensor) -> torch.Tensor:
    """Return x [m, n] transposed, contiguous [n, m]."""
    return x.t().contiguous()


KERNEL = Kernel(run=run)
