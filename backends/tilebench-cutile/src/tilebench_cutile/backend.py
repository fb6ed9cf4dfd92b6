"""The `cutile` backend: compiled on NVIDIA GPUs, or offline for any architecture that cuTile knows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

from tilebench_core import Backend, Compilation, Config, Device, Kernel, LaunchCode
from tilebench_core.backend import NativeSearch

__all__ = ["CutileBackend", "CutileOptions"]

_OLDEST = (1, 4)
"""The first cuTile that supports Hopper."""


@dataclass(frozen=True)
class CutileOptions:
    """`compiler_timeout_s` bounds one run of the tile compiler: tiles that are far too large take minutes."""

    compiler_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        if not self.compiler_timeout_s > 0:
            raise ValueError(f"backends.cutile.compiler_timeout_s must be positive, got {self.compiler_timeout_s}")


class CutileBackend(Backend):
    """NVIDIA cuTile. It has no interpreter: without a GPU its kernels are compiled, never run."""

    name: ClassVar[str] = "cutile"
    Options: ClassVar[type] = CutileOptions
    install: ClassVar[str] = "pip install tilebench-cutile"

    def probe(self, device: Device) -> str | None:
        """See `Backend.probe`."""
        try:
            found = version("cuda-tile")
        except PackageNotFoundError:
            return "the package cuda-tile is not installed: pip install 'cuda-tile[tileiras]'"
        if tuple(int(part) for part in found.split(".")[:2]) < _OLDEST:
            return f"cuda-tile {found} is too old, 1.4 is the first for Hopper: pip install -U 'cuda-tile[tileiras]'"
        if not device.is_gpu:
            return (
                "cuTile needs an NVIDIA GPU and has no interpreter; kernels compile without one: "
                "python -m tilebench_core.testing.compile_check OPERATOR cutile"
            )
        if device.capability < (8, 0):
            return f"cuTile needs compute capability 8.0 or newer, {device.name} has {device.arch}: use another GPU"
        if not _has_tile_compiler():
            return "the tile compiler (tileiras) is missing: pip install 'cuda-tile[tileiras]'"
        return None

    def versions(self) -> Mapping[str, str]:
        """See `Backend.versions`."""
        return dict(_installed("cuda-tile", "nvidia-cuda-tileiras"))

    def environment(self, device: Device) -> Mapping[str, str]:
        """See `Backend.environment`."""
        return {"CUDA_TILE_COMPILER_TIMEOUT_SEC": str(self.options.compiler_timeout_s)}

    def compile(self, kernel: Kernel, inputs: Sequence[Any], config: Config) -> Compilation:
        """See `Backend.compile`. The code is collected after the clock has stopped."""
        import torch

        from tilebench_cutile.capture import compiled_launch, recorded_launches
        from tilebench_cutile.errors import translated_errors

        start = time.perf_counter()
        with translated_errors(), recorded_launches(launch_too=True) as launches:
            kernel.run(*inputs, **config)
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
        with translated_errors():
            return Compilation(seconds=seconds, launches=tuple(compiled_launch(launch, arch) for launch in launches))

    def compile_for(self, kernel: Kernel, inputs: Sequence[Any], config: Config, arch: str) -> Compilation:
        """See `Backend.compile_for`. `run` is called with `ct.launch` replaced, so it computes nothing."""
        from tilebench_cutile.absent import absent_gpu
        from tilebench_cutile.capture import compile_launch, launch_key, recorded_launches
        from tilebench_cutile.errors import translated_errors

        start = time.perf_counter()
        with translated_errors(), absent_gpu():
            with recorded_launches(launch_too=False) as launches:
                kernel.run(*inputs, **config)
            timeout_s = self.options.compiler_timeout_s
            keys = [launch_key(launch, arch) for launch in launches]
            codes: dict[Any, LaunchCode] = {}
            for key, launch in zip(keys, launches, strict=True):  # a sort launches the same code dozens of times
                if key not in codes:
                    codes[key] = compile_launch(launch, arch, timeout_s)
        return Compilation(seconds=time.perf_counter() - start, launches=tuple(codes[key] for key in keys))

    def warm_cache(self, kernel: Kernel, inputs: Sequence[Any], config: Config, arch: str) -> None:
        """See `Backend.warm_cache`."""
        from tilebench_cutile.absent import absent_gpu
        from tilebench_cutile.capture import fill_cache, recorded_launches
        from tilebench_cutile.errors import translated_errors

        with translated_errors(), absent_gpu():
            with recorded_launches(launch_too=False) as launches:
                kernel.run(*inputs, **config)
            for launch in launches:
                fill_cache(launch, arch)

    def compile_many(
        self, kernel_module: str, inputs: Sequence[Any], configs: Sequence[Config], workers: int
    ) -> Iterator[Compilation | Exception]:
        """See `Backend.compile_many`. Workers fill cuTile's disk cache; this process then loads and runs the code."""
        from importlib import import_module

        import torch

        from tilebench_cutile.workers import fill_side_by_side

        kernel = import_module(kernel_module).KERNEL
        arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
        for config, failure in zip(
            configs, fill_side_by_side(kernel_module, inputs, configs, arch, workers), strict=True
        ):
            try:
                yield failure if failure is not None else self.compile(kernel, inputs, config)
            except Exception as error:  # a candidate's failure is its result, not the search's
                yield error

    def autotune(self, kernel: Kernel, inputs: Sequence[Any], configs: Sequence[Config]) -> NativeSearch:
        """See `Backend.autotune`: `cuda.tile.tune.exhaustive_search`, for a `run` that launches one kernel."""
        from tilebench_cutile.errors import translated_errors
        from tilebench_cutile.native import searched

        with translated_errors():
            return searched(kernel, inputs, configs)


def _has_tile_compiler() -> bool:
    """cuTile's own search: NVIDIA's Python packages, then PATH, then the CUDA toolkit."""
    from cuda.tile._compile import _find_compiler_bin

    try:
        _find_compiler_bin()
    except FileNotFoundError:
        return False
    return True


def _installed(*distributions: str) -> Iterator[tuple[str, str]]:
    for name in distributions:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue
