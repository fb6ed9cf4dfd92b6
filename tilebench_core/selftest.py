"""The checks of `tilebench doctor` that run on the GPU: cold against warm, and the clocks against each other.

Run as `python -m tilebench_core.selftest`; prints a JSON list of checks on its last line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from tilebench_core.doctor import check
from tilebench_core.registry import installed
from tilebench_core.timing import Clock, ClockError, clock_named, summarise
from tilebench_core.timing.gpu import CacheFlush

__all__ = ["main", "self_test"]

_COLD_FACTOR = 1.3
_CLOCK_AGREEMENT = 0.02


def _median_us(clock: Clock, call: Callable[[], object], before: Callable[[], None], repeat: int = 30) -> float:
    with clock.case():
        for _ in range(5):
            call()
        samples = clock.measure([call], [0] * repeat, before)
    return summarise([sample.busy_us for sample in samples]).median_us


def _nothing() -> None:
    pass


def self_test() -> list[dict[str, Any]]:
    """Time a copy that fits in L2 cold and warm, and one long kernel with every clock."""
    import torch

    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    source = torch.randn(max(1 << 18, l2_bytes // 16), device="cuda")
    target = torch.empty_like(source)
    flush = CacheFlush(l2_bytes)
    found = []
    long_source = torch.randn(1 << 28, device="cuda")
    long_target = torch.empty_like(long_source)
    times: dict[str, float] = {}
    offered = {name: path for plugin in installed().backends.values() for name, path in plugin.value.clocks.items()}
    for name in ("cupti", "events", *offered):
        try:
            clock = clock_named(name, offered)
            clock.open()
            times[name] = _median_us(clock, lambda: long_target.copy_(long_source), _nothing)
            if name == "cupti":
                cold = _median_us(clock, lambda: target.copy_(source), flush)
                warm = _median_us(clock, lambda: target.copy_(source), _nothing)
                status = "ok" if cold > _COLD_FACTOR * warm else "fail"
                text = f"a copy of {source.nbytes / 2**20:.0f} MiB takes {cold:.1f} µs cold and {warm:.1f} µs warm"
                found.append(check("cold L2", status, text))
            clock.close()
            found.append(check(f"clock {name}", "ok", f"{times[name]:.1f} µs for a copy of 1 GiB"))
        except ClockError as error:
            mend = "end other profilers; allow counters: NVreg_RestrictProfilingToAdminUsers=0"
            found.append(check(f"clock {name}", "warn", str(error), mend))
    spread = max(times.values()) / min(times.values()) - 1 if times else 1.0
    status = "ok" if spread <= _CLOCK_AGREEMENT and len(times) > 1 else "warn"
    found.append(check("clocks agree", status, f"{', '.join(times)} are within {spread:.2%} on one long kernel"))
    return found


def main() -> int:
    """Print the checks as JSON."""
    print(json.dumps(self_test()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
