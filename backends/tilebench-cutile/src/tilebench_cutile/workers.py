"""Compiling side by side. cuTile's compiler holds a lock within a process, so this takes several processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from tilebench_core import CompileError, Config

__all__ = ["fill_side_by_side"]


@dataclass(frozen=True)
class _Layout:
    """What a worker needs of a tensor: cuTile's code depends on its layout, never on its values."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any


def fill_side_by_side(
    kernel_module: str, inputs: Sequence[Any], configs: Sequence[Config], arch: str, workers: int
) -> Iterator[Exception | None]:
    """Compile every configuration into cuTile's disk cache; yield None, or what the compiler rejected it with.

    A worker never touches the GPU: it runs the kernel with CPU tensors of the same layouts, launches left out. Tensors
    whose code would differ there (a view that begins off a multiple of 16 bytes) are compiled once more when they run.
    """
    if workers <= 1 or len(configs) <= 1:
        yield from (None for _ in configs)
        return
    layouts = [_layout(value) for value in inputs]
    with ProcessPoolExecutor(min(workers, len(configs)), mp_context=get_context("spawn")) as pool:
        tasks = [pool.submit(_fill, kernel_module, layouts, dict(config), arch) for config in configs]
        for task in tasks:
            yield task.result()


def _layout(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return _Layout(tuple(value.shape), tuple(value.stride()), value.dtype)
    return value


def _tensor(value: Any) -> Any:
    import torch

    if isinstance(value, _Layout):
        return torch.empty_strided(value.shape, value.strides, dtype=value.dtype)  # its memory is never written
    return value


def _fill(kernel_module: str, layouts: Sequence[Any], config: Config, arch: str) -> Exception | None:
    """Runs in a worker process."""
    import os
    from importlib import import_module

    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before PyTorch looks, so that no worker holds memory of the GPU
    from tilebench_cutile.absent import absent_gpu
    from tilebench_cutile.capture import fill_cache, recorded_launches
    from tilebench_cutile.errors import translated_errors

    try:
        kernel = import_module(kernel_module).KERNEL
        with translated_errors(), absent_gpu():
            with recorded_launches(launch_too=False) as launches:
                kernel.run(*(_tensor(value) for value in layouts), **config)
            for launch in launches:
                fill_cache(launch, arch)
    except CompileError as error:
        return CompileError(str(error))  # without its cause, which may not survive the way to the parent
    except Exception:  # whatever only fails here, off the GPU, is left to the process that runs the kernel
        return None
    return None
