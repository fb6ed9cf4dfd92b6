"""Narrowing to fp16 in PyTorch."""

import torch
from tilebench_core import Kernel


def run(x: torch.Tensor) -> torch.Tensor:
    """Return x [n] in fp16."""
    return x.to(torch.float16)


KERNEL = Kernel(run=run)
