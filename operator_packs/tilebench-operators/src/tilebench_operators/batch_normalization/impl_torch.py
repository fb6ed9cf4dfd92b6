"""Batch normalization in PyTorch: one library call, fp32 inside."""

import torch
from tilebench_core import Kernel


def run(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, N: int, C: int, eps: float) -> torch.Tensor:
    """Return the batch normalization of x [N, C] with gamma [C] and beta [C] from the batch's own statistics.

    `torch.batch_norm` is what `torch.nn.functional.batch_norm` calls, without its refusal of a batch of one.
    """
    return torch.batch_norm(x, gamma, beta, None, None, True, 0.0, eps, torch.backends.cudnn.enabled)


KERNEL = Kernel(run=run)
