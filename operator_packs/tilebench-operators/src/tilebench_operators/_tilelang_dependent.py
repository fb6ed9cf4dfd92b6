"""Dependent launches in TileLang: a kernel starts while the one before it still runs, and waits where it needs its results.

CUDA calls this programmatic dependent launch. TileLang launches every kernel that contains `T.pdl_sync()` this way; with
`T.pdl_trigger()` a kernel lets the next one start once all its blocks have come there. What a kernel does before it waits (its
start, its indices, what it loads of the operator's own inputs) then costs nothing where launches follow one another in a
few microseconds. The first launch of an operator does not wait: inputs come from whatever ran before.
"""

from __future__ import annotations

import torch
from tilelang.contrib.nvcc import have_pdl
from tvm.target import Target

__all__ = ["dependent_launches"]


def dependent_launches() -> bool:
    """Whether the GPU that a kernel factory builds for has them: from Hopper (compute capability 9.0) on. TileLang
    rejects the two calls elsewhere."""
    target = Target.current(allow_none=True)
    if target is None:
        return torch.cuda.get_device_capability() >= (9, 0)
    return bool(have_pdl(target))
