"""Which TileLang kernels may be written with WGMMA, Hopper's products of whole warp groups."""

from __future__ import annotations

import torch
from tilelang.contrib.nvcc import get_target_compute_version
from tvm.target import Target

__all__ = ["has_wgmma"]


def has_wgmma() -> bool:
    """Whether the GPU that a kernel factory builds for has WGMMA: compute capability 9 alone."""
    target = Target.current(allow_none=True)
    if target is None:
        return torch.cuda.get_device_capability()[0] == 9
    return get_target_compute_version(target).split(".")[0] == "9"
