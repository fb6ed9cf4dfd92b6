"""TileLang's own tuner, `AutoTuner`, over the configurations of a kernel.

It compiles one kernel per configuration, side by side, and times each on tensors that it is supplied with. So it can be
given what `run` launches if that is a single kernel in every configuration. What `run` does around the launch is not in
its times.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest import mock

from tilebench_core import Config, Kernel
from tilebench_core.backend import NativeCandidate, NativeSearch
from tilebench_core.errors import NotTunable

from tilebench_tilelang.errors import one_line

__all__ = ["autotuned"]


@dataclass(frozen=True)
class _Built:
    """A factory, what `run` gave it, and the tensors that its kernel was called with."""

    factory: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: tuple[Any, ...]


class _Numbered:
    """A compiled kernel that knows its configuration: two of them may share one kernel."""

    def __init__(self, kernel: Any, number: int) -> None:
        self._kernel, self.number = kernel, number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)


def _space(candidate: int) -> None:
    """What the tuner takes for the kernel's factory: it asks for the names of parameters only."""


def autotuned(kernel: Kernel, inputs: Sequence[Any], configs: Sequence[Config]) -> NativeSearch:
    """Let `AutoTuner` choose among `configs`, with its own defaults.

    Raises NotTunable if `run` launches more or less than one kernel in some configuration.
    """
    from tilelang.autotuner import AutoTuner
    from tilelang.autotuner import tuner as module

    for config in configs:
        _only_launch(kernel, inputs, config)
    times: dict[int, float] = {}
    failures: dict[int, str] = {}
    compile_s: dict[int, float] = {}
    elaborating, supplied = threading.Lock(), threading.local()

    def compiled(candidate: int, **_: Any) -> _Numbered:
        start = time.perf_counter()
        try:
            with elaborating:  # TileLang itself elaborates one after the other, and compiles side by side
                built = _only_launch(kernel, inputs, configs[candidate])
                function = built.factory.get_tir(*built.args, **built.kwargs)
            return _Numbered(_compile(built.factory, function), candidate)
        except Exception as error:
            failures[candidate] = one_line(error)
            raise
        finally:
            compile_s[candidate] = time.perf_counter() - start

    class Tuner(AutoTuner):  # type: ignore[misc]  # TileLang's classes are untyped
        """Notes what becomes of each configuration, and supplies it with the tensors of its own call."""

        def _benchmark_target(self, jit_kernel: _Numbered, **rest: Any) -> Any:
            number = jit_kernel.number
            try:
                supplied.tensors = list(_only_launch(kernel, inputs, configs[number]).tensors)
                latency_ms, reference = super()._benchmark_target(jit_kernel=jit_kernel, **rest)
            except Exception as error:
                failures[number] = one_line(error)
                raise
            times[number] = float(latency_ms) * 1e3
            return latency_ms, reference

    tuner = Tuner(_space, [{"candidate": number} for number in range(len(configs))])
    tuner.set_compile_args().set_profile_args(supply_prog=lambda _: supplied.tensors, skip_check=True)
    tuner.jit_compile, tuner.jit_elaborate = compiled, lambda **_: None
    with mock.patch.object(module, "_init_logger_handlers"):  # it would leave autotuner.log where we are
        result = tuner.run()
    late = "the tuner had no result of it within its time limit"
    return NativeSearch(
        tuner="tilelang.autotuner.AutoTuner",
        measured="mean of 100 launches by TileLang's profiler: CUDA events, L2 cleared, no graph",
        winner=configs[result.config["candidate"]],
        candidates=tuple(
            NativeCandidate(
                config=config,
                time_us=times.get(number),
                failure=failures.get(number, None if number in times else late),
                compile_s=compile_s.get(number),
            )
            for number, config in enumerate(configs)
        ),
    )


def _compile(factory: Any, function: Any) -> Any:
    """Compile as the factory itself would."""
    import tilelang

    return tilelang.compile(
        function,
        out_idx=factory.out_idx,
        execution_backend=factory.execution_backend,
        target=factory.target,
        target_host=factory.target_host,
        verbose=factory.verbose,
        pass_configs=factory.pass_configs,
        compile_flags=factory.compile_flags,
    )


def _only_launch(kernel: Kernel, inputs: Sequence[Any], config: Config) -> _Built:
    """What `run` builds and calls in a configuration, if it is one kernel; nothing is compiled or launched."""
    from tilelang.jit import JITImpl

    built: list[_Built] = []

    def build(self: Any, *args: Any, **kwargs: Any) -> Any:
        return lambda *tensors: built.append(_Built(self, args, kwargs, tensors))

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(JITImpl, "__call__", build))
        kernel.run(*inputs, **config)
    if len(built) != 1:
        raise NotTunable(
            f"TileLang's AutoTuner times a single kernel, and run launches {len(built)} with {dict(config)}"
        )
    if built[0].factory.out_idx is not None:
        raise NotTunable(
            "TileLang's AutoTuner is given all tensors of a call, and this kernel allocates its own (out_idx)"
        )
    return built[0]
