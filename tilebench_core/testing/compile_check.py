"""Compile kernels for GPUs that are not there: `python -m tilebench_core.testing.compile_check softmax triton`.

Prints one line per compilation and exits with 1 if any fails. `--space` compiles every configuration of the search space.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from tilebench_core.case import Case
from tilebench_core.device import target_device
from tilebench_core.errors import BackendError, RequestError
from tilebench_core.packs import Operator
from tilebench_core.precompile.unfilled import UnfilledDraw
from tilebench_core.registry import installed
from tilebench_core.testing.kernel_check import select_cases

__all__ = ["SHARED_MEMORY_LIMIT", "compile_case", "main"]

SHARED_MEMORY_LIMIT = {"sm_80": 166_912, "sm_90": 232_448, "sm_100": 232_448, "sm_120": 101_376}
"""Bytes of shared memory that one block may have, per architecture (CUDA C++ Programming Guide, compute capabilities)."""


def compile_case(
    operator: Operator, backend_name: str, case: Case, config: Any, arch: str, provider: str = ""
) -> tuple[bool, str]:
    """Compile one configuration; return whether it is usable on `arch`, and a line that says what came out."""
    registry = installed()
    backend = registry.backend(backend_name).value()
    kernel = registry.kernel(operator, backend_name, provider).load()
    reason = kernel.unsupported(case, target_device(arch))
    if reason is not None:
        return True, f"UNSUPPORTED: {reason}"
    inputs = operator.load().inputs(case, UnfilledDraw())
    try:
        compilation = backend.compile_for(kernel, inputs, config, arch)
    except BackendError as error:
        return False, f"{type(error).__name__}: {error}"
    if not compilation.launches:
        return False, "nothing was launched"
    resources = [launch.resources for launch in compilation.launches]
    used = max((r.shared_bytes or 0 for r in resources), default=0)
    line = f"{compilation.seconds:.1f}s " + "; ".join(
        f"{launch.name} regs {launch.resources.registers} shared {launch.resources.shared_bytes} spill {launch.resources.spill_bytes}"
        for launch in compilation.launches
    )
    if used > SHARED_MEMORY_LIMIT[arch]:
        return False, f"{line}; needs {used} bytes of shared memory, {arch} has {SHARED_MEMORY_LIMIT[arch]}"
    return True, line


def main(arguments: list[str] | None = None) -> int:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operator")
    parser.add_argument("backend")
    parser.add_argument("--dtype", default="")
    parser.add_argument("--arch", default="sm_80,sm_90,sm_100")
    parser.add_argument("--cases", default="smoke")
    parser.add_argument("--space", action="store_true")
    parser.add_argument("--provider", default="", help="the distribution whose kernel is compiled, if several ship one")
    wanted = parser.parse_args(arguments)
    registry = installed()
    device = target_device(wanted.arch.split(",")[0])
    for name, value in registry.backend(wanted.backend).value().environment(device).items():
        os.environ.setdefault(name, value)
    operator = registry.operator(wanted.operator)
    kernel = registry.kernel(operator, wanted.backend, wanted.provider).load()
    failed = False
    for dtype in wanted.dtype.split(",") if wanted.dtype else operator.config.dtypes:
        for case in select_cases(operator, dtype, wanted.cases):
            for config in kernel.space(case) if wanted.space else [kernel.default(case)]:
                for arch in wanted.arch.split(","):
                    usable, line = compile_case(operator, wanted.backend, case, config, arch, wanted.provider)
                    failed |= not usable
                    print(
                        f"{operator.name} {dtype} {case.label} {dict(config)} {arch}: {'' if usable else 'FAILED '}{line}",
                        flush=True,
                    )
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RequestError as error:
        sys.exit(f"tilebench: {error}")
