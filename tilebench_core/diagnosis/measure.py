"""Verify and time variants of one kernel in turns: `python -m tilebench_core.diagnosis.measure REQUEST ANSWER`.

The same inputs, reference, clock and rounds as a campaign; only the configuration and the backend's options differ.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

__all__ = ["main", "measure"]


def measure(
    job: Mapping[str, Any], variants: Sequence[Mapping[str, Any]], device: str, clock_name: str, repeat: int
) -> list[float]:
    """Median latencies of the variants in µs. Raises RuntimeError for a variant whose result is wrong."""
    from tilebench_core.case import Case
    from tilebench_core.registry import installed
    from tilebench_core.testing.kernel_check import reference_of
    from tilebench_core.timing import Entry, TimingSettings, clock_named, time_entries
    from tilebench_core.verify import precision_state, prepare_case, verify_launch

    registry = installed()
    operator, plugin = registry.operator(job["operator"]), registry.backend(job["backend"])
    sources = registry.kernels_for(operator, job["backend"])
    kernel = next(source for source in sources if job["provider"] in (None, str(source.provider))).load()
    case = Case(operator.name, job["dtype"], job["params"], index=job["case_index"])
    with precision_state("fp32"):
        prepared = prepare_case(
            case, operator.load(), reference_of(registry, operator), partial(operator.config.tolerance, case), device, 0
        )
    settings = TimingSettings(clock=clock_name, cpu_clock=clock_name, protocol="fixed", repeat=repeat)
    offered = {name: target for p in registry.backends.values() for name, target in p.value.clocks.items()}
    clock = clock_named(clock_name, offered)
    clock.open()
    with precision_state(job["precision"]), contextlib.ExitStack() as stack:
        entries = []
        for number, variant in enumerate(variants):
            backend = plugin.value(plugin.value.Options(**variant["options"]))
            stack.enter_context(backend.session())
            backend.compile(kernel, prepared.inputs, variant["config"])
            launch = partial(backend.launch, kernel, prepared.inputs, variant["config"])
            verdict = verify_launch(prepared, launch)
            if not verdict.passed:
                raise RuntimeError(f"variant {variant['config']} is wrong: {verdict.message}")
            entries.append(Entry(str(number), *_calls(launch, device)))
        prepared.refill(0)
        with clock.case():
            timings = time_entries(entries, settings, clock, _evicting(device))
    clock.close()
    return [statistics.median(sample.busy_us for sample in timing.samples) for timing in timings]


def _calls(launch: Callable[[], Any], device: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """What is timed, and its warm-up: the replay of a graph on a GPU, as campaigns do."""
    if device == "cpu":
        return launch, launch
    from tilebench_core.timing.gpu import capture

    captured = capture(launch)
    return captured.replay, captured.replay


def _evicting(device: str) -> Callable[[], None]:
    if device == "cpu":
        return lambda: None
    import torch

    from tilebench_core.timing.gpu import CacheFlush

    return CacheFlush(torch.cuda.get_device_properties(0).L2_cache_size)


def main(arguments: list[str]) -> int:
    """Measure what REQUEST says; the answer holds the latencies, or the reason why there are none."""
    request = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    os.environ.update(request["environment"])  # read when a DSL is imported
    try:
        values = measure(request["job"], request["variants"], request["device"], request["clock"], request["repeat"])
        answer: dict[str, Any] = {"latencies_us": values}
    except Exception as error:  # whatever stopped it is the answer; the parent says it
        answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"}
    Path(arguments[1]).write_text(json.dumps(answer), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
