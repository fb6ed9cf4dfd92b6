"""1-D convolution in PyTorch: one library call."""

import torch
import torch.nn.functional as F
from tilebench_core import Kernel


def run(input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int) -> torch.Tensor:
    """Return the convolution [batch, Cout, L_out] of input [batch, Cin, L] with weight [Cout, Cin/groups, k]."""
    return F.conv1d(input, weight, None, stride, padding, 1, groups)


KERNEL = Kernel(run=run)
