"""L2 normalization in PyTorch, which has no library call with eps inside the root."""

import torch
from tilebench_core import Kernel


def run(x: torch.Tensor, eps: float) -> torch.Tensor:
    """Return x [1, rows, K] over the square root of (the sum of squares of its last axis + eps).

    `vector_norm` reads x once and accumulates in fp32, and the product rounds once: two passes over x. A sum of
    squares spelled out would write x² first. The norm is squared again to add eps, on [1, rows, 1] only.
    """
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
    # A [1, rows, 1] fp32 factor would make the product fp32; `out` rounds it where it is computed.
    return torch.mul(x, torch.rsqrt(norm.square_().add_(eps)), out=torch.empty_like(x))


KERNEL = Kernel(run=run)
