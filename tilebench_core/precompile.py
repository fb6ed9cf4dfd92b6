"""Compiling ahead: the planned kernels are compiled side by side, into the DSLs' own disk caches, before the first runs.

Compilers take seconds and one core each, so a campaign that compiled as it went would leave both the GPU and most cores
idle. What is compiled here is what the worker asks its cache for later; a kernel that fails here fails there too, and is
recorded there.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilebench_core.case import Case
from tilebench_core.config import RunConfig
from tilebench_core.definition import Draw
from tilebench_core.device import Device
from tilebench_core.plan import CaseTask

if TYPE_CHECKING:
    import torch

__all__ = ["UnfilledDraw", "precompile"]


class UnfilledDraw(Draw):
    """Draws tensors of the right shape and dtype whose memory is never touched: a compiler looks at no values."""

    def __init__(self) -> None:
        super().__init__("cpu", 0)

    def _empty(self, shape: Sequence[int], dtype: Any) -> torch.Tensor:
        empty: torch.Tensor = self._torch.empty(shape, dtype=self._dtype(dtype))
        return empty

    def normal(self, *shape: int, dtype: Any) -> torch.Tensor:
        """See `Draw.normal`."""
        return self._empty(shape, dtype)

    def uniform(self, *shape: int, dtype: Any, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """See `Draw.uniform`."""
        return self._empty(shape, dtype)

    def integers(self, *shape: int, dtype: Any, low: int, high: int) -> torch.Tensor:
        """See `Draw.integers`."""
        return self._empty(shape, dtype)

    def permutation(self, n: int, *, dtype: Any = "int64") -> torch.Tensor:
        """See `Draw.permutation`."""
        return self._empty((n,), dtype)


def _jobs(tasks: Sequence[CaseTask], share: str) -> list[tuple[str, str, str, list[dict[str, Any]], bool]]:
    """(backend, kernel module, operator folder, cases, whole space) for every kernel and dtype that is going to run.

    Where winners are shared between cases, only the first case of each kernel and dtype is searched.
    """
    grouped: dict[tuple[str, str, str, str, bool, int], list[dict[str, Any]]] = {}
    for task in tasks:
        for trial in task.trials:
            if trial.verdict is None and trial.module is not None:
                tuned = trial.mode == "tuned"
                apart = task.case.index if tuned and share == "case" else 0
                key = trial.backend, trial.module, task.operator.folder, task.case.dtype, tuned, apart
                case, cases = asdict(task.case), grouped.setdefault(key, [])
                if case not in cases and not (tuned and cases):
                    cases.append(case)
    return [
        (backend, module, folder, cases, tuned) for (backend, module, folder, _, tuned, _), cases in grouped.items()
    ]


def _compile_job(
    backend_name: str,
    options: Mapping[str, Any],
    module: str,
    folder: str,
    cases: Sequence[dict[str, Any]],
    whole_space: bool,
    arch: str,
) -> int:
    """Compile the default configuration of each case, or its whole space; runs in a process of its own.

    Returns how many configurations compiled.
    """
    from importlib import import_module

    from tilebench_core.registry import installed

    registry = installed()
    value = registry.backend(backend_name).value
    backend = value(value.Options(**options))
    kernel = import_module(module).KERNEL
    definition = registry.operators[folder].load()
    compiled = 0
    for raw in cases:
        case = Case(**raw)
        inputs = definition.inputs(case, UnfilledDraw())
        for config in kernel.space(case) if whole_space else [kernel.default(case)]:
            try:
                backend.compile_for(kernel, inputs, config, arch)
                compiled += 1
            except NotImplementedError:
                return compiled
            except Exception:  # its failure is recorded where the kernel really runs; here it only means no head start
                continue
    return compiled


def _quiet(log: str, environment: Mapping[str, str]) -> None:
    """Send what a compiler prints to the campaign's log, and hide the GPU: compilers must not make contexts on it."""
    os.environ.update(environment)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    import torch

    torch.set_num_threads(1)


def precompile(
    tasks: Sequence[CaseTask],
    config: RunConfig,
    device: Device,
    environment: Mapping[str, str],
    log: Path,
    say: Callable[[str], None],
) -> None:
    """Compile what `tasks` will need, on all cores. Best effort: nothing depends on it but time."""
    jobs = _jobs(tasks, config.tune.share)
    if not jobs:
        return
    start, compiled, failed = time.monotonic(), 0, 0
    context = multiprocessing.get_context("spawn")
    workers = min(len(jobs), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, context, _quiet, (str(log), dict(environment))) as pool:
        futures = []
        for backend, module, folder, cases, tuned in jobs:
            options = dict(config.backends[backend] or {})
            futures.append(pool.submit(_compile_job, backend, options, module, folder, cases, tuned, device.arch))
        for future in as_completed(futures):
            try:
                compiled += future.result()
            except (BrokenProcessPool, Exception):  # a compiler that dies here is met again, and charged, in the worker
                failed += 1
    lost = f", {failed} compilers died" if failed else ""
    say(f"compiled {compiled} configurations ahead in {time.monotonic() - start:.0f} s on {workers} cores{lost}")
