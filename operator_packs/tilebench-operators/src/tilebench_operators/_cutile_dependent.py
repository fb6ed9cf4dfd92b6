"""Dependent launches in cuTile: a kernel starts while the one before it still runs, and waits where it needs its results.

CUDA calls this programmatic dependent launch. A kernel that calls `ct.grid_dependency_control_launch_dependents()` lets the
next one start once all its blocks have come there; the next one, launched with `launch_dependent`, calls
`ct.grid_dependency_control_wait()` in every block before it touches what earlier launches wrote. What it does before (its
start, its indices, what it loads of the operator's own inputs) then costs nothing where launches follow one another in a
few microseconds. The first launch of an operator is an ordinary one: inputs come from whatever ran before.
"""

from __future__ import annotations

import functools
from typing import Any

import cuda.tile as ct
import torch

__all__ = ["launch_dependent"]


@functools.cache
def _supported(device: torch.device) -> bool:
    """From Hopper (compute capability 9.0) on; elsewhere launches wait for one another as a whole."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (9, 0)


def launch_dependent(stream: Any, grid: tuple[int, ...], kernel: Any, arguments: tuple[Any, ...]) -> None:
    """As `ct.launch`, but the kernel may start before the launch in front of it has ended. `arguments` begin with a tensor."""
    ct.launch(stream, grid, kernel, arguments, programmatic_dependent_launch=_supported(arguments[0].device))
