"""Matrix multiplication in PyTorch: one library call, which chooses its own schedule."""

import torch
from tilebench_core import Kernel


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a @ b; a [m, k], b [k, n], the result [m, n] in their dtype."""
    return torch.matmul(a, b)


KERNEL = Kernel(run=run)
