"""The device that kernels run on, or are compiled for."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["CPU", "Device", "multiprocessors", "target_device"]


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device as kernels and plans see it. `capability` is CUDA's, e.g. (9, 0); sizes are 0 where they are unknown."""

    kind: str
    name: str
    index: int = 0
    capability: tuple[int, int] = (0, 0)
    multiprocessors: int = 0
    l2_bytes: int = 0
    memory_bytes: int = 0
    driver: str = ""
    uuid: str = ""

    @property
    def is_gpu(self) -> bool:
        """True for a CUDA device."""
        return self.kind == "cuda"

    @property
    def arch(self) -> str:
        """CUDA's name of the architecture, e.g. "sm_90"; "cpu" without a GPU."""
        return f"sm_{self.capability[0]}{self.capability[1]}" if self.is_gpu else "cpu"

    @property
    def torch_name(self) -> str:
        """The name that PyTorch takes, e.g. "cuda:0"."""
        return f"cuda:{self.index}" if self.is_gpu else "cpu"

    @property
    def alone(self) -> Device:
        """The device as a process counts it that sees no other GPU. Kernels are launched on the current one, which is the first."""
        return replace(self, index=0)


CPU = Device(kind="cpu", name="CPU")

MULTIPROCESSORS = "TILEBENCH_MULTIPROCESSORS"
"""The variable that tells a process without a GPU how many multiprocessors the one has that it compiles for."""

# Multiprocessors of the full product of each architecture that we compile for without having it.
_TARGETS = {"sm_80": 108, "sm_90": 132, "sm_100": 148, "sm_120": 188}


def target_device(arch: str) -> Device:
    """Return a stand-in for a GPU of `arch` (e.g. "sm_90") that is not here, for compilation alone."""
    digits = arch.removeprefix("sm_").rstrip("af")
    return Device(
        kind="cuda",
        name=f"{arch} (not present)",
        capability=(int(digits[:-1]), int(digits[-1])),
        multiprocessors=_TARGETS.get(f"sm_{digits}", 132),
    )


def multiprocessors(device: torch.device) -> int:
    """Return how many multiprocessors `device` has, for grids that fill it once.

    Off the GPU (interpreted, or compiled for a device that is not there) it is a small fixed number, or what the environment
    says of the GPU that is compiled for: only the size of the grid depends on it, never a result.
    """
    import torch

    if device.type != "cuda" or not torch.cuda.is_available():
        return int(os.environ.get(MULTIPROCESSORS, 4))
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
