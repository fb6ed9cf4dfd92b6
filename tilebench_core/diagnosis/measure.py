"""Verify and time variants of one kernel in turns: `python -m tilebench_core.diagnosis.measure REQUEST ANSWER`.

The same inputs, reference, clock and rounds as a campaign; only the configuration and the backend's options differ.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["main", "measure"]


def measure(
    job: Mapping[str, Any], variants: Sequence[Mapping[str, Any]], device: str, clock_name: str, repeat: int
) -> list[float]:
    """Median latencies of the variants in µs. Raises RuntimeError for a variant whose result is wrong."""
    from tilebench_core.case import Case
    from tilebench_core.registry import installed
    from tilebench_core.testing.turns import Variant, medians_in_turns
    from tilebench_core.timing import clock_named

    registry = installed()
    operator, plugin = registry.operator(job["operator"]), registry.backend(job["backend"])
    sources = registry.kernels_for(operator, job["backend"])
    kernel = next(source for source in sources if job["provider"] in (None, str(source.provider))).load()
    case = Case(operator.name, job["dtype"], job["params"], index=job["case_index"])
    offered = {name: target for p in registry.backends.values() for name, target in p.value.clocks.items()}
    clock = clock_named(clock_name, offered)
    clock.open()
    runs = [
        Variant(f"variant {v['config']}", plugin.value(plugin.value.Options(**v["options"])), kernel, v["config"])
        for v in variants
    ]
    medians = medians_in_turns(operator, case, job["precision"], runs, device, clock, repeat)
    clock.close()
    return medians


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
