"""The `torch` backend: PyTorch's eager operators, the reference and the baseline of the speedups."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from tilebench_core.backend import Backend, Compilation
from tilebench_core.device import Device
from tilebench_core.errors import DeviceOutOfMemory, LaunchError
from tilebench_core.kernel import Config, Kernel

__all__ = ["TorchBackend"]


def _built_for_cuda() -> bool:
    """Whether the installed PyTorch was built with CUDA, read from its file of versions: importing it takes seconds."""
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return False
    text = (Path(spec.submodule_search_locations[0]) / "version.py").read_text(encoding="utf-8")
    return re.search(r"^cuda\b[^=]*= *['\"]", text, re.MULTILINE) is not None


class TorchBackend(Backend):
    """PyTorch in eager mode, on the CPU and on CUDA devices."""

    name: ClassVar[str] = "torch"
    install: ClassVar[str] = "pip install torch"
    tunable: ClassVar[bool] = False

    def probe(self, device: Device) -> str | None:
        """See `Backend.probe`."""
        if device.is_gpu and not _built_for_cuda():
            return (
                "this PyTorch was built without CUDA: install a CUDA build of torch (https://pytorch.org/get-started)"
            )
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
