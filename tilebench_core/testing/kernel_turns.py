"""Time a kernel file against the kernel in place: `python -m tilebench_core.testing.kernel_turns softmax mydsl my_impl.py`.

For whoever changes a kernel: both are verified on each case; then both are timed in turns within one process, with the clock, the
graphs and the cold cache of a campaign, each in its own default configuration. Prints a line per case and the geometric mean of
the ratios; exits with 1 if one of them is wrong, or fails, somewhere.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from tilebench_core.analysis.points import geomean
from tilebench_core.errors import BackendError, RequestError, TilebenchError
from tilebench_core.kernel import Kernel
from tilebench_core.packs import exported_kernel
from tilebench_core.registry import installed
from tilebench_core.testing.kernel_check import select_cases
from tilebench_core.testing.turns import Variant, WrongResult, medians_in_turns
from tilebench_core.timing import TimingSettings, clock_named

__all__ = ["kernel_of", "main"]


def kernel_of(path: Path) -> Kernel:
    """The `KERNEL` of a file that belongs to no pack. Raises RequestError without a file, PluginError without a KERNEL."""
    spec = spec_from_file_location(f"tilebench_kernel_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise RequestError(f"{path}: no such kernel file; expected one like impl_mydsl.py of an operator's folder")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # DSLs look up a kernel's module for its source
    spec.loader.exec_module(module)
    return exported_kernel(module, path)


def main(arguments: list[str] | None = None) -> int:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operator")
    parser.add_argument("backend")
    parser.add_argument("file", type=Path, help="a kernel file, such as a changed copy of impl_mydsl.py")
    parser.add_argument("--dtype", default="", help="comma-separated; all of the operator's by default")
    parser.add_argument(
        "--cases", default="first,largest", help="first, largest, grid, or places in the grid; comma-separated"
    )
    parser.add_argument("--samples", type=int, default=40, help="launches of each that are timed (40)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--provider", default="", help="the distribution of the kernel in place, if several ship one")
    wanted = parser.parse_args(arguments)
    from tilebench_core.devices import find_device

    registry, device = installed(), find_device(wanted.device)
    operator, value = registry.operator(wanted.operator), registry.backend(wanted.backend).value
    backend = value()
    if backend.interpreted(device):
        raise RequestError(
            f"backend {value.name!r} is interpreted on {device.name}: its kernels are verified there, never timed"
        )
    os.environ.update(backend.environment(device))
    settings = TimingSettings()
    clock = clock_named(settings.clock if device.is_gpu else settings.cpu_clock, {})
    clock.open()  # before CUDA graphs are captured
    kernels = {
        "the kernel in place": registry.kernel(operator, wanted.backend, wanted.provider).load(),
        "the file's kernel": kernel_of(wanted.file),
    }
    failed, ratios = False, []
    dtypes = wanted.dtype.split(",") if wanted.dtype else operator.config.dtypes
    for case in [case for dtype in dtypes for case in select_cases(operator, dtype, wanted.cases)]:
        line = f"{operator.name} {case.dtype} {case.label}: "
        reason = next((reason for k in kernels.values() if (reason := k.unsupported(case, device)) is not None), None)
        if reason is not None:
            print(f"{line}UNSUPPORTED: {reason}", flush=True)
            continue
        variants = [Variant(name, backend, kernel, kernel.default(case)) for name, kernel in kernels.items()]
        precision = operator.config.precision(case.dtype)
        try:
            one, other = medians_in_turns(operator, case, precision, variants, device.torch_name, clock, wanted.samples)
        except (WrongResult, BackendError) as error:
            failed = True
            print(f"{line}{'WRONG' if isinstance(error, WrongResult) else type(error).__name__}: {error}", flush=True)
            continue
        ratios.append(other / one)
        print(f"{line}in place {one:.2f} µs, file {other:.2f} µs, {ratios[-1]:.3f}", flush=True)
    clock.close()
    mean = geomean(ratios)
    print(
        f"the file's kernel takes {mean:.3f} times as long, geometric mean of {len(ratios)}"
        if mean
        else "nothing was timed"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TilebenchError as error:
        sys.exit(f"tilebench: {error}")
