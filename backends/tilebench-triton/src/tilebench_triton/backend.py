"""The `triton` backend: compiled on CUDA devices, interpreted on a CPU, compiled offline for any architecture."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, ClassVar

from tilebench_core import Backend, Compilation, CompileError, Config, Device, DeviceOutOfMemory, Kernel, LaunchError
from tilebench_core.backend import NativeSearch
from tilebench_core.errors import BackendError

__all__ = ["TritonBackend", "TritonOptions"]


@dataclass(frozen=True)
class TritonOptions:
    """`fp_fusion` lets the compiler contract a multiply and an add into one operation, as CUDA does by default."""

    fp_fusion: bool = True


class TritonBackend(Backend):
    """Triton. On a CPU the kernels run in its interpreter: slow, good for verification, never timed."""

    name: ClassVar[str] = "triton"
    Options: ClassVar[type] = TritonOptions
    install: ClassVar[str] = "pip install tilebench-triton"
    clocks: ClassVar[Mapping[str, str]] = {"proton": "tilebench_triton.proton:ProtonClock"}

    def probe(self, device: Device) -> str | None:
        """See `Backend.probe`."""
        if find_spec("triton") is None:
            return "the package triton is not installed: pip install triton"
        if device.is_gpu and device.capability < (8, 0):
            return f"Triton needs compute capability 8.0 or newer, {device.name} has {device.arch}: use another GPU"
        return None

    def versions(self) -> Mapping[str, str]:
        """See `Backend.versions`."""
        try:
            return {"triton": version("triton")}
        except PackageNotFoundError:
            return {}

    def interpreted(self, device: Device) -> bool:
        """See `Backend.interpreted`."""
        return not device.is_gpu

    def environment(self, device: Device) -> Mapping[str, str]:
        """See `Backend.environment`. Triton reads both when a kernel is decorated, so they must be there first."""
        fusion = {"TRITON_DEFAULT_FP_FUSION": "1" if self.options.fp_fusion else "0"}
        return {**fusion, "TRITON_INTERPRET": "1"} if self.interpreted(device) else fusion

    def compile(self, kernel: Kernel, inputs: Sequence[Any], config: Config) -> Compilation:
        """See `Backend.compile`."""
        import torch

        from tilebench_triton.capture import captured_launches

        start = time.perf_counter()
        with captured_launches() as launches, translated_errors():
            kernel.run(*inputs, **config)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
        return Compilation(seconds=time.perf_counter() - start, launches=tuple(launches))

    def compile_for(self, kernel: Kernel, inputs: Sequence[Any], config: Config, arch: str) -> Compilation:
        """See `Backend.compile_for`. Needs a process in which TRITON_INTERPRET is not set."""
        from tilebench_triton.capture import absent_gpu, captured_launches

        start = time.perf_counter()
        with absent_gpu(arch), captured_launches(compile_only=True) as launches, translated_errors():
            kernel.run(*inputs, **config)
        return Compilation(seconds=time.perf_counter() - start, launches=tuple(launches))

    def autotune(self, kernel: Kernel, inputs: Sequence[Any], configs: Sequence[Config]) -> NativeSearch:
        """See `Backend.autotune`: `triton.autotune` over the whole `run`."""
        from tilebench_triton.native import autotuned

        with translated_errors():
            return autotuned(kernel.run, inputs, configs)


class translated_errors:
    """A context that turns Triton's and PyTorch's exceptions into ours, each with one line that says what happened."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or not isinstance(error, Exception) or isinstance(error, BackendError):
            return
        import torch
        import triton

        if isinstance(error, torch.OutOfMemoryError):
            raise DeviceOutOfMemory(str(error).splitlines()[0]) from error
        if isinstance(error, triton.runtime.errors.OutOfResources):
            raise LaunchError(str(error)) from error
        if isinstance(error, triton.compiler.CompilationError | triton.runtime.errors.PTXASError):
            raise CompileError(_summary(error)) from error
        raise LaunchError(f"{type(error).__name__}: {error}") from error


def _summary(error: Exception) -> str:
    """The innermost cause of a compilation error, with the kernel's source line where Triton names it."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(cause).__name__}: {str(cause).splitlines()[-1] if str(cause) else ''} ({lines[0] if lines else ''})"
