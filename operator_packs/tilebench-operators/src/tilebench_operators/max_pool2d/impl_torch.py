"""2-D max pooling in PyTorch: one library call."""

import torch
import torch.nn.functional as F
from tilebench_core import Kernel


def run(
    input: torch.Tensor, N: int, C: int, H: int, W: int, kernel_size: int, stride: int, padding: int
) -> torch.Tensor:
    """Return the pooled images [N·C·H_out·W_out] of input [N·C·H·W], both flat NCHW."""
    return F.max_pool2d(input.view(N, C, H, W), kernel_size, stride, padding).flatten()


KERNEL = Kernel(run=run)
