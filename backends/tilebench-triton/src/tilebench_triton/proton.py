"""The `proton` clock, the published one: device time by Triton's profiler, the graphs captured inside its session.

Proton credits every replay of a CUDA graph to the scope of its first replay. So a scope per entry gives that entry's
total over all rounds, from which its mean follows, and no samples: records of this clock hold means only.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tilebench_core.timing import Clock, ClockError, Sample

__all__ = ["ProtonClock", "scope_totals"]

_TIME, _COUNT = "time (ns)", "count"


def scope_totals(tree: Any) -> dict[str, tuple[float, int]]:
    """Sum a profile per scope named `launch<entry>`: (nanoseconds, number of device activities)."""
    totals: dict[str, tuple[float, int]] = {}

    def walk(node: Any, scope: str | None) -> None:
        name = node.get("frame", {}).get("name", "")
        scope = name if name.startswith("launch") and name[6:].isdigit() else scope
        metrics = node.get("metrics", {})
        if scope is not None and metrics.get(_TIME):
            time_ns, count = totals.get(scope, (0.0, 0))
            totals[scope] = time_ns + float(metrics[_TIME]), count + int(metrics.get(_COUNT, 0))
        for child in node.get("children", []):
            walk(child, scope)

    for root in tree if isinstance(tree, list) else [tree]:
        if isinstance(root, dict):
            walk(root, None)
    return totals


class ProtonClock(Clock):
    """Mean device time per launch by Proton. Only one CUPTI client can be attached to a process at a time."""

    name: ClassVar[str] = "proton"
    means_only: ClassVar[bool] = True

    def __init__(self) -> None:
        self._session: int | None = None
        self._path = Path()
        self._number = 0

    def open(self) -> None:
        """See `Clock.open`."""
        try:
            import triton.profiler  # noqa: F401  (only whether it can be imported)
        except ImportError as error:
            raise ClockError(f"clock proton: {error}; install Triton: pip install tilebench-triton") from error

    @contextlib.contextmanager
    def case(self) -> Iterator[None]:
        """See `Clock.case`."""
        import triton.profiler as proton

        with tempfile.TemporaryDirectory(prefix="tilebench-proton-") as scratch:
            folder = self.profile_dir or Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            self._number += 1
            self._path = folder / f"case{self._number:05d}"
            try:
                self._session = proton.start(str(self._path), context="shadow", data="tree", backend="cupti")
            except Exception as error:  # Proton raises plain RuntimeErrors; the clock fails by name
                raise ClockError(f"clock proton: {error}; another profiler may be attached") from error
            try:
                yield
            finally:
                if self._session is not None:
                    proton.finalize(self._session)
                    self._session = None

    def measure(
        self, launches: Sequence[Callable[[], object]], order: Sequence[int], before: Callable[[], None]
    ) -> list[Sample]:
        """See `Clock.measure`: one Sample per distinct entry, its mean over all its launches."""
        import torch
        import triton.profiler as proton

        for entry in order:
            before()
            with proton.scope(f"launch{entry}"):
                launches[entry]()
        torch.cuda.synchronize()
        proton.finalize(self._session)
        self._session = None
        totals = scope_totals(json.loads(self._path.with_suffix(".hatchet").read_text(encoding="utf-8")))
        samples = []
        for entry in dict.fromkeys(order):
            launched = order.count(entry)
            time_ns, count = totals.get(f"launch{entry}", (0.0, 0))
            samples.append(Sample(entry, time_ns / launched / 1e3, None, round(count / launched)))
        return samples
