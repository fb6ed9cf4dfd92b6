"""The `torch_compile` backend: the functions of the `torch` backend under `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

from tilebench_core.backend import Compilation
from tilebench_core.kernel import Config, Kernel
from tilebench_core.pytorch.eager import TorchBackend

__all__ = ["TorchCompileBackend", "TorchCompileOptions"]


@dataclass(frozen=True)
class TorchCompileOptions:
    """`mode` is `torch.compile`'s. Its own CUDA graphs stay off: graphs are the timing protocol's business."""

    mode: str = "default"


class TorchCompileBackend(TorchBackend):
    """What a PyTorch user would pick instead of writing a kernel; it has no kernels of its own."""

    name: ClassVar[str] = "torch_compile"
    kernels_of: ClassVar[str] = "torch"
    Options: ClassVar[type] = TorchCompileOptions

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._compiled: dict[Callable[..., Any], Callable[..., Any]] = {}

    def versions(self) -> Mapping[str, str]:
        """See `Backend.versions`; on a GPU, Inductor generates code through the compiler that PyTorch depends on."""
        found = {"torch": version("torch")}
        try:
            found["inductor_compiler"] = version("triton")
        except PackageNotFoundError:
            pass  # a CPU build of PyTorch generates C++
        return found

    def compile(self, kernel: Kernel, inputs: Sequence[Any], config: Config) -> Compilation:
        """Compile afresh for each case, with static shapes: Dynamo would otherwise stop recompiling after eight shapes
        and run the rest in eager mode without a word."""
        import torch

        torch._dynamo.reset()
        self._compiled = {kernel.run: torch.compile(kernel.run, dynamic=False, mode=self.options.mode)}
        return super().compile(kernel, inputs, config)

    def launch(self, kernel: Kernel, inputs: Sequence[Any], config: Config) -> Any:
        """See `Backend.launch`."""
        return self._compiled[kernel.run](*inputs, **config)
