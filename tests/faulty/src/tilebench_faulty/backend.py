"""The `faulty` backend: an honest one, so that only its kernels misbehave; and one of another plugin API."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tilebench_core import Backend, Compilation, CompileError, Config, Device, Kernel, LaunchError

__all__ = ["FaultyBackend", "NotCompilable", "OutdatedBackend"]


class NotCompilable(Exception):
    """What the faulty kernels raise for a compiler's error."""


class FaultyBackend(Backend):
    """Runs kernels from files called impl_faulty.py with PyTorch, on the CPU."""

    name: ClassVar[str] = "faulty"

    def probe(self, device: Device) -> str | None:
        """See `Backend.probe`."""
        return "its faults are for the CPU: tilebench run device=cpu" if device.is_gpu else None

    def versions(self) -> Mapping[str, str]:
        """See `Backend.versions`."""
        return {"faulty": "1"}

    def compile(self, kernel: Kernel, inputs: Sequence[Any], config: Config) -> Compilation:
        """See `Backend.compile`; tells the kernels that they are being compiled."""
        from tilebench_faulty import phases

        phases.begin()
        start = time.perf_counter()
        try:
            kernel.run(*inputs, **config)
        except NotCompilable as error:
            raise CompileError(str(error)) from error
        except Exception as error:
            raise LaunchError(f"{type(error).__name__}: {error}") from error
        return Compilation(seconds=time.perf_counter() - start)


class OutdatedBackend(Backend):
    """A backend of another plugin API."""

    name: ClassVar[str] = "outdated"
    api: ClassVar[int] = 0

    def probe(self, device: Device) -> str | None:
        """See `Backend.probe`."""
        return None

    def versions(self) -> Mapping[str, str]:
        """See `Backend.versions`."""
        return {"outdated": "0"}

    def compile(self, kernel: Kernel, inputs: Sequence[Any], config: Config) -> Compilation:
        """See `Backend.compile`."""
        return Compilation(seconds=0.0)
