"""The `example` backend: about forty lines are all that TileBench asks for."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar

from tilebench_core import Backend, Compilation, CompileError, Config, Device, Kernel, LaunchCode, LaunchError

__all__ = ["ExampleBackend", "ExampleOptions"]


@dataclass(frozen=True)
class ExampleOptions:
    """`keep_code` keeps the byte code of what was launched."""

    keep_code: bool = True


class ExampleBackend(Backend):
    """Runs kernels from files called impl_example.py, on the CPU."""

    name: ClassVar[str] = "example"
    install: ClassVar[str] = "pip install tilebench-example"
    Options: ClassVar[type] = ExampleOptions

    def probe(self, device: Device) -> str | None:
        """See `Backend.probe`."""
        return "its tiles are NumPy arrays, which live on the CPU: tilebench run device=cpu" if device.is_gpu else None

    def versions(self) -> Mapping[str, str]:
        """See `Backend.versions`."""
        return {"tilebench-example": version("tilebench-example"), "numpy": version("numpy")}

    def compile(self, kernel: Kernel, inputs: Sequence[Any], config: Config) -> Compilation:
        """See `Backend.compile`."""
        from tilebench_example.tiles import TileError, recording

        start = time.perf_counter()
        try:
            with recording() as launched:
                kernel.run(*inputs, **config)
        except TileError as error:
            raise CompileError(str(error)) from error
        except Exception as error:
            raise LaunchError(f"{type(error).__name__}: {error}") from error
        seconds = time.perf_counter() - start
        stages = ({"bytecode": item.code} if self.options.keep_code else {} for item in launched)
        launches = tuple(LaunchCode(name=item.name, stages=code) for item, code in zip(launched, stages, strict=True))
        return Compilation(seconds=seconds, launches=launches)
