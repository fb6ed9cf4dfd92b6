"""Which kernels a call launches, by NVIDIA's activity records: names as the binary has them, in the order of their start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilebench_core.timing.clock import ClockError

__all__ = ["ActivityTrace", "Traced"]

_BUFFER_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Traced:
    """Kernels by their mangled names, and how many copies ("memcpy") and fills ("memset") stood beside them."""

    kernels: tuple[str, ...]
    others: Mapping[str, int] = field(default_factory=dict)


class ActivityTrace:
    """Traces single calls by cupti-python. Only one CUPTI client can be attached to a process at a time."""

    def __init__(self) -> None:
        try:
            from cupti import cupti
        except ImportError as error:
            raise ClockError(f"the activity trace: {error}; install it with: pip install 'tilebench[gpu]'") from error
        self._cupti: Any = cupti
        self._found: list[Any] = []
        kind = cupti.ActivityKind
        self._kinds = {kind.CONCURRENT_KERNEL: "kernel", kind.MEMCPY: "memcpy", kind.MEMSET: "memset"}
        try:
            cupti.activity_register_callbacks(lambda: (_BUFFER_BYTES, 0), self._completed)
            for wanted in self._kinds:
                cupti.activity_enable(wanted)
        except Exception as error:  # cupti-python raises its own error class for every status; the trace fails by name
            raise ClockError(f"the activity trace: {error}; another profiler may be attached") from error

    def _completed(self, activities: Sequence[Any]) -> None:
        # What an activity says is copied: its memory is the buffer's, which is used again.
        for activity in activities:
            name = self._kinds.get(activity.kind)
            if name is not None:
                self._found.append((activity.start, name, str(activity.name) if name == "kernel" else ""))

    def of(self, call: Callable[[], object]) -> Traced:
        """Call once and say what reached the device."""
        import torch

        torch.cuda.synchronize()
        self._cupti.activity_flush_all(1)
        self._found.clear()
        call()
        torch.cuda.synchronize()
        self._cupti.activity_flush_all(1)
        found = sorted(self._found)
        return Traced(
            tuple(name for _, kind, name in found if kind == "kernel"),
            dict(Counter(kind for _, kind, _ in found if kind != "kernel")),
        )

    def close(self) -> None:
        """Detach from the device."""
        for kind in self._kinds:
            self._cupti.activity_disable(kind)
