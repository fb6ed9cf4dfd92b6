"""Matrix transposition in PyTorch."""

import torch
from tilebench_core import Kernel


def run(x: torch.Tensor) -> torch.Tensor:
    """Return x [m, n] transposed, contiguous [n, m]."""
    # contiguous() would return a view of x itself where one extent is 1; the result has its own memory.
    return x.t().clone(memory_format=torch.contiguous_format)


KERNEL = Kernel(run=run)
