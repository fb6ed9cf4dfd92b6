"""The `tilelang` backend: compiled on CUDA devices, lowered offline for any architecture."""

from __future__ import annotations

import json
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, ClassVar

from tilebench_core import Backend, Compilation, CompileError, Config, Device, DeviceOutOfMemory, Kernel, LaunchError
from tilebench_core.backend import NativeSearch
from tilebench_core.errors import BackendError

__all__ = ["TilelangBackend", "TilelangOptions"]


@dataclass(frozen=True)
class TilelangOptions:
    """Where compiled kernels are kept between processes, and how far an offline compilation goes.

    `cache_dir` is TileLang's disk cache; empty means its own default. A compilation for an absent GPU ends with the CUDA
    source; with `assemble`, nvcc makes a binary of it, which takes seconds and tells registers and spills.
    """

    cache_dir: str = ""
    assemble: bool = False


class TilelangBackend(Backend):
    """TileLang. It has no interpreter, so kernels run on GPUs only."""

    name: ClassVar[str] = "tilelang"
    Options: ClassVar[type] = TilelangOptions
    install: ClassVar[str] = "pip install tilebench-tilelang"
    inspection: ClassVar[Mapping[str, Any]] = {"assemble": True}
    compilers_import: ClassVar[tuple[str, ...]] = ("tilelang",)

    def probe(self, device: Device) -> str | None:
        """See `Backend.probe`."""
        from tilebench_tilelang.toolchain import cplus_compiler, nvcc

        if find_spec("tilelang") is None:
            return f"the package tilelang is not installed: {self.install}"
        if not device.is_gpu:
            return (
                "TileLang has no interpreter and needs a CUDA GPU: use another machine; to compile only, type "
                "python -m tilebench_core.testing.compile_check OPERATOR tilelang"
            )
        if device.capability < (8, 0):
            return f"TileLang needs compute capability 8.0 or newer, {device.name} has {device.arch}: use another GPU"
        if nvcc() is None:
            return (
                "TileLang compiles with nvcc, which is not in $CUDA_HOME/bin, on PATH or in /usr/local/cuda/bin: "
                "pip install 'nvidia-cuda-nvcc>=13' 'nvidia-cuda-cccl>=13', or install the CUDA toolkit"
            )
        if cplus_compiler() is None:
            return "TileLang links with a C++ compiler, and there is no g++ or clang++ on PATH: apt-get install g++"
        return None

    def versions(self) -> Mapping[str, str]:
        """See `Backend.versions`. The CUDA toolkit is not a distribution, unless it came as one."""
        found = {}
        for name in ("tilelang", "apache-tvm-ffi", "nvidia-cuda-nvcc"):
            try:
                found[name] = version(name)
            except PackageNotFoundError:
                continue
        return found

    def environment(self, device: Device) -> Mapping[str, str]:
        """See `Backend.environment`.

        The target is named, so that processes which compile side by side without touching the GPU and the one that
        launches agree on it, and with it on the keys of the disk cache.
        """
        from tilebench_tilelang.capture import exact_arch

        variables = {"TILELANG_PRINT_ON_COMPILATION": "0", "TILELANG_EXECUTION_BACKEND": "tvm_ffi"}
        if self.options.cache_dir:
            variables["TILELANG_CACHE_DIR"] = self.options.cache_dir
        if device.is_gpu:
            variables["TILELANG_DEFAULT_TARGET"] = json.dumps({"kind": "cuda", "arch": exact_arch(device.arch)})
        return variables

    def compile(self, kernel: Kernel, inputs: Sequence[Any], config: Config) -> Compilation:
        """See `Backend.compile`."""
        import torch

        from tilebench_tilelang.capture import captured_launches, quiet

        quiet()
        start = time.perf_counter()
        with translated_errors(), captured_launches() as launches:
            kernel.run(*inputs, **config)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
        return Compilation(seconds=time.perf_counter() - start, launches=tuple(launches))

    def compile_for(self, kernel: Kernel, inputs: Sequence[Any], config: Config, arch: str) -> Compilation:
        """See `Backend.compile_for`."""
        from tilebench_tilelang.capture import absent_gpu, quiet
        from tilebench_tilelang.toolchain import cplus_compiler, nvcc

        quiet()
        if self.options.assemble and (nvcc() is None or cplus_compiler() is None):
            raise CompileError("assemble=true needs nvcc and a C++ compiler: install them, or set assemble=false")
        start = time.perf_counter()
        with translated_errors(), absent_gpu(arch, self.options.assemble) as launches:
            kernel.run(*inputs, **config)
        return Compilation(seconds=time.perf_counter() - start, launches=tuple(launches))

    def warm_cache(self, kernel: Kernel, inputs: Sequence[Any], config: Config, arch: str) -> None:
        """See `Backend.warm_cache`. The architecture is the one that `environment` named when TileLang was imported."""
        from tilebench_tilelang.capture import compiled_only, quiet, without_data

        quiet()
        with compiled_only(arch):
            kernel.run(*without_data(inputs), **config)

    def code_key(self, kernel: Kernel, inputs: Sequence[Any], config: Config, arch: str) -> Hashable | None:
        """See `Backend.code_key`: the factories that `run` calls, and what it calls them with."""
        from tilebench_tilelang.capture import requested, without_data

        with requested(arch) as calls:
            kernel.run(*without_data(inputs), **config)
        return tuple(calls)

    def compile_many(
        self, kernel_module: str, inputs: Sequence[Any], configs: Sequence[Config], workers: int
    ) -> Iterator[Compilation | Exception]:
        """See `Backend.compile_many`. Processes fill the disk cache; this one then loads from it and launches."""
        from importlib import import_module

        from tilebench_tilelang.side_by_side import fill_cache

        kernel = import_module(kernel_module).KERNEL
        for config, failure in zip(configs, fill_cache(kernel_module, inputs, configs, workers), strict=True):
            if failure is not None:
                yield failure
                continue
            try:
                yield self.compile(kernel, inputs, config)
            except Exception as error:  # a candidate's failure is its result, not the search's
                yield error

    def autotune(self, kernel: Kernel, inputs: Sequence[Any], configs: Sequence[Config]) -> NativeSearch:
        """See `Backend.autotune`: `tilelang.autotuner.AutoTuner`, for a `run` that launches one kernel."""
        from tilebench_tilelang.capture import quiet
        from tilebench_tilelang.native import autotuned

        quiet()
        with translated_errors():
            return autotuned(kernel, inputs, configs)


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn what `run` raises outside TileLang into our errors; TileLang's own have been turned where they happened."""
    import torch

    from tilebench_tilelang.errors import one_line

    try:
        yield
    except BackendError:
        raise
    except torch.OutOfMemoryError as error:
        raise DeviceOutOfMemory(str(error).splitlines()[0]) from error
    except Exception as error:  # whatever a kernel file raises is a failed launch of it
        raise LaunchError(one_line(error)) from error
