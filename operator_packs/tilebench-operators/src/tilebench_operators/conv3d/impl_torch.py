"""3-D convolution in PyTorch: one library call."""

import torch
import torch.nn.functional as F
from tilebench_core import Kernel


def run(input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int) -> torch.Tensor:
    """Return the convolution of input [batch, Cin, D, H, W] with weight [Cout, Cin/groups, k, k, k]."""
    return F.conv3d(input, weight, None, stride, padding, 1, groups)


KERNEL = Kernel(run=run)
