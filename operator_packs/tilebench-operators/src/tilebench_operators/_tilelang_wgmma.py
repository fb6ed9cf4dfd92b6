"""Which TileLang kernels may be written with WGMMA, Hopper's products of whole warp groups."""

from __future__ import annotations

from functools import cache

from tilelang.backend.target import determine_target
from tilelang.contrib.nvcc import get_target_compute_version
from tilelang.env import env
from tvm.target import Target

__all__ = ["has_wgmma"]


@cache
def _default_target() -> Target:
    """The target of a kernel that is launched, which is also named to processes that compile ahead and see no GPU."""
    return determine_target(env.get_default_target(), return_object=True)


def has_wgmma() -> bool:
    """Whether the GPU that kernels are built for has WGMMA: compute capability 9 alone."""
    target = Target.current(allow_none=True) or _default_target()
    return get_target_compute_version(target).split(".")[0] == "9"
