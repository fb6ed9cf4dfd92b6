"""Triton's own tuner, `triton.autotune`, over the configurations of a kernel.

`triton.autotune` wants a function to launch and configurations to launch it with. Here the function is the operator's
whole `run`: its grid, its descriptors and how often it launches may all depend on the configuration, in Python. So what
Triton's benchmarker times, and what it chooses by, is the same unit of work that TileBench measures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilebench_core import Config, LaunchError
from tilebench_core.backend import NativeCandidate, NativeSearch

__all__ = ["autotuned"]

_LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""What `triton.Config` takes beside a kernel's own parameters."""


class _Operator:
    """`run` as Triton's tuner sees a kernel. It notes how long each configuration's first call took, and its failure."""

    arg_names: Sequence[str] = ()

    def __init__(self, run: Callable[..., Any], inputs: Sequence[Any]) -> None:
        def operator() -> None:
            """The name in Triton's messages."""

        self.fn = operator
        self._run, self._inputs = run, inputs
        self.compile_s: dict[Any, float] = {}
        self.failures: dict[Any, str] = {}

    def run(self, **config: Any) -> Any:
        key = tuple(sorted(config.items()))
        start = time.perf_counter()
        try:
            return self._run(*self._inputs, **config)
        except Exception as error:
            self.failures[key] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            raise
        finally:
            self.compile_s.setdefault(key, time.perf_counter() - start)


def autotuned(
    run: Callable[..., Any], inputs: Sequence[Any], configs: Sequence[Config], do_bench: Any = None
) -> NativeSearch:
    """Let `triton.autotune` choose among `configs`; `do_bench` replaces its benchmarker where there is no GPU.

    Triton counts configurations that need too many resources as failed; any other exception ends its search.
    """
    import triton

    operator = _Operator(run, inputs)
    wanted = [_config(config) for config in configs]
    tuner = triton.autotune(configs=wanted, key=[], do_bench=do_bench)(operator)
    tuner.cache_results = False  # TRITON_CACHE_AUTOTUNING would look for a kernel's source in the operator
    try:
        tuner.run()
    except Exception as error:
        if min((times[0] for times in getattr(tuner, "configs_timings", {}).values()), default=0.0) < float("inf"):
            raise  # the search itself was ended
        reasons = "; ".join(dict.fromkeys(operator.failures.values()))[:300]
        raise LaunchError(f"none of {len(configs)} configurations works: {reasons}") from error
    timings = {config: float(times[0]) * 1e3 for config, times in tuner.configs_timings.items()}
    candidates = []
    for config, triton_config in zip(configs, wanted, strict=True):
        key, time_us = tuple(sorted(config.items())), timings[triton_config]
        finite = time_us < float("inf")
        candidates.append(
            NativeCandidate(
                config=config,
                time_us=time_us if finite else None,
                failure=None if finite else operator.failures.get(key, "Triton gave it no time"),
                compile_s=operator.compile_s.get(key),
            )
        )
    return NativeSearch(
        tuner="triton.autotune",
        measured="median of the whole run() by triton.testing.do_bench: CUDA events, L2 cleared, no graph",
        winner=configs[wanted.index(tuner.best_config)],
        candidates=tuple(candidates),
    )


def _config(config: Mapping[str, Any]) -> Any:
    """A configuration as Triton's; what it does not set stays unset, so that `run` gets its own keys and no others."""
    import triton

    own = {name: value for name, value in config.items() if name not in _LAUNCH_OPTIONS}
    return triton.Config(own, **{name: config.get(name) for name in _LAUNCH_OPTIONS})
