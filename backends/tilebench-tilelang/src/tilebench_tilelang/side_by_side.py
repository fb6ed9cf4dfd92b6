"""Compiling in processes side by side: one TileLang compilation takes seconds, and threads don't help it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

from tilebench_core import CompileError, Config

from tilebench_tilelang.capture import without_data

__all__ = ["fill_cache"]


def fill_cache(
    kernel_module: str, inputs: Sequence[Any], configs: Sequence[Config], workers: int
) -> Iterator[Exception | None]:
    """Compile every configuration into TileLang's disk cache; yield None or the failure of each, in their order.

    The processes see shapes and dtypes only, not the device. A kernel that depends on the number of multiprocessors is
    compiled for another number there, and once more where it is launched.
    """
    stand_ins = without_data(inputs)  # so that nothing is copied between processes
    with _pool(max(1, min(workers, len(configs)))) as pool:
        tasks = [pool.submit(_compile, kernel_module, stand_ins, dict(config)) for config in configs]
        for config, task in zip(configs, tasks, strict=True):
            try:
                yield task.result()
            except BrokenProcessPool:  # some configuration killed its process: find out whether this one does
                yield _alone(kernel_module, stand_ins, dict(config))


def _alone(kernel_module: str, stand_ins: list[Any], config: dict[str, Any]) -> Exception | None:
    with _pool(1) as pool:
        try:
            return pool.submit(_compile, kernel_module, stand_ins, config).result()
        except BrokenProcessPool:
            return CompileError(f"the compiler's process died on {config}")


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"))  # a forked child of CUDA or TVM does not work


def _compile(kernel_module: str, stand_ins: list[Any], config: dict[str, Any]) -> Exception | None:
    """Run in a worker process: call `run` with launches left out, and return its failure, if any."""
    from importlib import import_module

    from tilebench_tilelang.capture import compiled_only, quiet
    from tilebench_tilelang.errors import one_line

    kernel = import_module(kernel_module).KERNEL
    quiet()
    try:
        with compiled_only():
            kernel.run(*stand_ins, **config)
    except CompileError as error:
        return CompileError(str(error))  # without its cause, which may not survive the way to the other process
    except Exception as error:  # a kernel file may raise anything; it is this configuration's result
        return CompileError(one_line(error))
    return None
