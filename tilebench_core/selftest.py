"""The checks of `tilebench doctor` that run on the GPU: cold against warm, and the clocks against each other.

Run as `python -m tilebench_core.selftest CLOCK`, a process per clock: only one profiler can be attached to a process.
Prints one JSON object on its last line: `{"median_us": …, "checks": […]}`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from tilebench_core.doctor import check
from tilebench_core.registry import installed
from tilebench_core.timing import Clock, ClockError, clock_named, summarise
from tilebench_core.timing.gpu import CacheFlush, capture

__all__ = ["main", "self_test"]

_COLD_FACTOR = 1.3


def _median_us(clock: Clock, call: Callable[[], object], before: Callable[[], None], repeat: int = 30) -> float:
    """Median (or mean, where the clock has no samples) of a graph's replays, as a campaign times them."""
    with clock.case():
        graph = capture(call)
        for _ in range(5):
            call()  # Proton would credit a graph's first replay, and all later ones, to no scope of ours
        samples = clock.measure([graph.replay], [0] * repeat, before)
    return summarise([sample.busy_us for sample in samples]).median_us


def _nothing() -> None:
    pass


def self_test(name: str) -> dict[str, Any]:
    """Time one long kernel with the clock `name`, and with `cupti` also a copy that fits in L2, cold and warm."""
    import torch

    offered = {key: path for plugin in installed().backends.values() for key, path in plugin.value.clocks.items()}
    try:
        clock = clock_named(name, offered)
        clock.open()
        long_source = torch.randn(1 << 28, device="cuda")
        long_target = torch.empty_like(long_source)
        median_us = _median_us(clock, lambda: torch.add(long_source, 1, out=long_target), _nothing)
    except ClockError as error:
        mend = "end other profilers; allow counters: NVreg_RestrictProfilingToAdminUsers=0"
        return {"median_us": None, "checks": [check(f"clock {name}", "warn", str(error), mend)]}
    found = [check(f"clock {name}", "ok", f"{median_us:.1f} µs to add to 1 GiB")]
    if name == "cupti":
        found.append(_cold_l2(clock))
    clock.close()
    return {"median_us": median_us, "checks": found}


def _cold_l2(clock: Clock) -> dict[str, Any]:
    import torch

    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    source = torch.randn(max(1 << 18, l2_bytes // 16), device="cuda")
    target = torch.empty_like(source)
    cold = _median_us(clock, lambda: target.copy_(source), CacheFlush(l2_bytes))
    warm = _median_us(clock, lambda: target.copy_(source), _nothing)
    text = f"a copy of {source.nbytes / 2**20:.0f} MiB takes {cold:.1f} µs cold and {warm:.1f} µs warm"
    return check("cold L2", "ok" if cold > _COLD_FACTOR * warm else "fail", text)


def main() -> int:
    """Print what one clock showed."""
    print(json.dumps(self_test(sys.argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
