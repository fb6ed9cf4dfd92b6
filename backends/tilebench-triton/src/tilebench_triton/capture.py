"""What a kernel's `run` launches, seen from inside Triton: with a GPU, or for one that is not there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tilebench_core import LaunchCode, Resources
from tilebench_core.diagnosis.cubin import kernel_uses

__all__ = ["absent_gpu", "captured_launches"]

_TEXT_STAGES = ("ttir", "ttgir", "llir", "ptx")


@contextlib.contextmanager
def captured_launches(compile_only: bool = False) -> Iterator[list[LaunchCode]]:
    """Collect every kernel that Triton compiles or finds in its cache inside the context.

    With `compile_only`, a launch compiles the kernel and does not run it.
    """
    from triton.runtime.jit import JITFunction

    launches: list[LaunchCode] = []
    original = JITFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        compiled = original(self, *args, grid=grid, warmup=warmup or compile_only, **kwargs)
        if hasattr(compiled, "asm"):
            launches.append(_launch_code(compiled))
        return compiled

    JITFunction.run = run
    try:
        yield launches
    finally:
        JITFunction.run = original


def _launch_code(compiled: Any) -> LaunchCode:
    metadata = compiled.metadata
    loaded = getattr(compiled, "module", None) is not None  # from then on the driver has told registers and spills
    use = kernel_uses(compiled.asm["cubin"]).get(metadata.name) if "cubin" in compiled.asm and not loaded else None
    return LaunchCode(
        name=metadata.name,
        resources=Resources(
            registers=use.registers if use else getattr(compiled, "n_regs", None),
            spill_bytes=use.frame_bytes if use else getattr(compiled, "n_spills", None),
            shared_bytes=metadata.shared,
            dynamic_shared_bytes=metadata.shared,
            threads=metadata.num_warps * 32,
        ),
        stages={stage: compiled.asm[stage] for stage in (*_TEXT_STAGES, "cubin") if stage in compiled.asm},
    )


@contextlib.contextmanager
def absent_gpu(arch: str) -> Iterator[None]:
    """Let Triton believe that a GPU of `arch` (e.g. "sm_90") is there, so that it compiles for it."""
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase
    from triton.runtime.driver import driver

    capability = int(arch.removeprefix("sm_"))

    class AbsentGpu(DriverBase):
        """Answers what Triton asks before it compiles. The device number keeps its caches of architectures apart."""

        def __init__(self) -> None:
            pass

        @classmethod
        def is_active(cls) -> bool:
            return True

        def map_python_to_cpp_type(self, ty: str) -> str:
            raise NotImplementedError("nothing is launched on a GPU that is not there")

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", capability, 32)

        def get_current_device(self) -> int:
            return capability

        def get_current_stream(self, device: int | None = None) -> int:
            return 0

        def get_active_torch_device(self) -> Any:
            import torch

            return torch.device("cpu")

        def get_benchmarker(self) -> Any:
            raise NotImplementedError("nothing is timed on a GPU that is not there")

        def get_empty_cache_for_benchmark(self) -> Any:
            raise NotImplementedError("nothing is timed on a GPU that is not there")

    previous = driver._active
    driver.set_active(AbsentGpu())
    try:
        yield
    finally:
        driver._active = previous
