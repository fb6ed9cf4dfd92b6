"""cuTile's own tuner, `cuda.tile.tune.exhaustive_search`, over the configurations of a kernel.

It times one kernel by its arguments and grid, so it can be given what `run` launches if that is a single kernel in every
configuration. What `run` does around the launch is not in its times.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from unittest import mock

from tilebench_core import Config, Kernel
from tilebench_core.backend import NativeCandidate, NativeSearch
from tilebench_core.errors import NotTunable

from tilebench_cutile.capture import Launch, recorded_launches

__all__ = ["searched"]


def searched(kernel: Kernel, inputs: Sequence[Any], configs: Sequence[Config]) -> NativeSearch:
    """Let `exhaustive_search` choose among `configs`.

    Raises NotTunable if `run` launches more or less than one kernel in some configuration.
    """
    import torch
    from cuda.tile import _compile as compiler
    from cuda.tile.tune import exhaustive_search

    # Without the arguments, which hold the outputs of a call each.
    seen = [(found.kernel, found.grid) for found in (_only_launch(kernel, inputs, config) for config in configs)]
    compile_s = dict.fromkeys(range(len(configs)), 0.0)
    current = 0

    @lru_cache(maxsize=1)
    def arguments(number: int) -> tuple[Any, ...]:
        nonlocal current
        current = number
        return _only_launch(kernel, inputs, configs[number]).arguments

    original = compiler.compile_tile

    def compile_tile(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            compile_s[current] += time.perf_counter() - start

    with mock.patch.object(compiler, "compile_tile", compile_tile):
        result = exhaustive_search(
            range(len(configs)),
            torch.cuda.current_stream(),
            lambda number: seen[number][1],
            _kernels(exhaustive_search, [found for found, _ in seen]),
            arguments,
            quiet=True,
        )
    times = {measurement.config: measurement.mean_us for measurement in result.successes}
    failures = {number: f"{kind.__name__}: {(text.splitlines() or [''])[0]}" for number, kind, text in result.failures}
    return NativeSearch(
        tuner="cuda.tile.tune.exhaustive_search",
        measured="mean device time of the launch, L2 flushed, until it is known to 1 %",
        winner=configs[result.best.config],
        candidates=tuple(
            NativeCandidate(
                config=config, time_us=times.get(number), failure=failures.get(number), compile_s=compile_s[number]
            )
            for number, config in enumerate(configs)
        ),
    )


def _only_launch(kernel: Kernel, inputs: Sequence[Any], config: Config) -> Launch:
    """What `run` launches in a configuration, if it is one kernel; it is prepared here and not launched."""
    with recorded_launches(launch_too=False) as launches:
        kernel.run(*inputs, **config)
    if len(launches) != 1:
        raise NotTunable(
            f"cuda.tile.tune.exhaustive_search times a single kernel, and run launches {len(launches)} with {dict(config)}"
        )
    return launches[0]


def _kernels(search: Any, kernels: Sequence[Any]) -> Any:
    """One kernel for all configurations, or a function that gives each its own, as kernels with other hints are."""
    if all(kernel is kernels[0] for kernel in kernels):
        return kernels[0]
    if "Callable" not in str(inspect.signature(search).parameters["kernel"].annotation):
        raise NotTunable("this cuTile tunes one kernel object, and run launches several: pip install -U cuda-tile")
    return lambda number: kernels[number]
