"""The `torch` backend: PyTorch's eager operators, the reference and the baseline of the speedups."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, ClassVar

from tilebench_core.backend import Backend, Compilation
from tilebench_core.device import Device
from tilebench_core.errors import DeviceOutOfMemory, LaunchError
from tilebench_core.kernel import Config, Kernel

__all__ = ["TorchBackend"]


class TorchBackend(Backend):
    """PyTorch in eager mode, on the CPU and on CUDA devices."""

    name: ClassVar[str] = "torch"
    install: ClassVar[str] = "pip install torch"

    def probe(self, device: Device) -> str | None:
        """See `Backend.probe`."""
        import torch

        if device.is_gpu and not torch.cuda.is_available():
            return "this PyTorch sees no CUDA device: install a CUDA build of torch (https://pytorch.org/get-started)"
        return None

    def versions(self) -> Mapping[str, str]:
        """See `Backend.versions`."""
        return {"torch": version("torch")}

    def compile(self, kernel: Kernel, inputs: Sequence[Any], config: Config) -> Compilation:
        """Call the kernel once, so that libraries are loaded and their heuristics settled before anything is timed."""
        import torch

        start = time.perf_counter()
        try:
            self.launch(kernel, inputs, config)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
        except torch.OutOfMemoryError as error:
            raise DeviceOutOfMemory(str(error).splitlines()[0]) from error
        except Exception as error:
            raise LaunchError(f"{type(error).__name__}: {error}") from error
        return Compilation(seconds=time.perf_counter() - start)
