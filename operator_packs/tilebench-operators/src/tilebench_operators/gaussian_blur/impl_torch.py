"""Blur with a small kernel in PyTorch: one convolution of one channel."""

import torch
import torch.nn.functional as F
from tilebench_core import Kernel


def run(input: torch.Tensor, kernel: torch.Tensor, rows: int, cols: int, krows: int, kcols: int) -> torch.Tensor:
    """Return the blurred image [rows·cols] of input [rows·cols] and kernel [krows·kcols], all flat."""
    image, weights = input.view(1, 1, rows, cols), kernel.view(1, 1, krows, kcols)
    return F.conv2d(image, weights, padding=(krows // 2, kcols // 2)).flatten()


KERNEL = Kernel(run=run)
