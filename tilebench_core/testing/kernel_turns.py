"""Time a kernel file against the kernel in place: `python -m tilebench_core.testing.kernel_turns softmax mydsl my_impl.py`.

For whoever changes a kernel: what the file holds is verified on each case first; then both are timed in turns within one
process, with the clock, the graphs and the cold cache of a campaign, each in its own default configuration. Prints a line per
case and the geometric mean of the ratios; exits with 1 if the file's kernel is wrong somewhere.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from tilebench_core.analysis.points import geomean
from tilebench_core.backend import Backend
from tilebench_core.case import Case
from tilebench_core.device import Device
from tilebench_core.errors import PluginError, RequestError
from tilebench_core.kernel import Kernel
from tilebench_core.packs import Operator
from tilebench_core.registry import installed
from tilebench_core.testing.kernel_check import reference_of, select_cases
from tilebench_core.timing import Clock, Entry, TimingSettings, clock_named, time_entries

__all__ = ["WrongResult", "kernel_of", "main", "medians_in_turns"]


def kernel_of(path: Path) -> Kernel:
    """The `KERNEL` of a file that belongs to no pack. Raises RequestError without a file, PluginError without a KERNEL."""
    spec = spec_from_file_location(f"tilebench_kernel_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise RequestError(f"{path}: no such kernel file; expected one like impl_mydsl.py of an operator's folder")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # DSLs look up a kernel's module for its source
    spec.loader.exec_module(module)
    kernel = getattr(module, "KERNEL", None)
    if not isinstance(kernel, Kernel):
        raise PluginError(f"{path}: exports no `KERNEL = Kernel(run=..., ...)`")
    return kernel


class WrongResult(Exception):
    """The kernel of the file computes something else than the operator; the message says where."""


def medians_in_turns(
    operator: Operator,
    backend: Backend,
    kernels: tuple[Kernel, Kernel],
    case: Case,
    device: Device,
    clock: Clock,
    samples: int,
) -> tuple[float, float]:
    """Median µs of both kernels on a case. Raises WrongResult if the second one's result is wrong; it is verified first."""
    from tilebench_core.verify import precision_state, prepare_case, verify_launch

    reference = reference_of(installed(), operator)
    with precision_state("fp32"):
        prepared = prepare_case(
            case, operator.load(), reference, partial(operator.config.tolerance, case), device.torch_name, 0
        )
    settings = TimingSettings(protocol="fixed", warmup=5, repeat=samples)
    with precision_state(operator.config.precision(case.dtype)), backend.session():
        calls = [partial(backend.launch, kernel, prepared.inputs, kernel.default(case)) for kernel in kernels]
        for kernel in kernels:
            backend.compile(kernel, prepared.inputs, kernel.default(case))
        verdict = verify_launch(prepared, calls[1])
        if not verdict.passed:
            raise WrongResult(verdict.message)
        prepared.refill(0)
        with clock.case():
            launches, before = _timed(calls, device)
            entries = [Entry(str(number), launch, launch) for number, launch in enumerate(launches)]
            timings = time_entries(entries, settings, clock, before)
    one, other = (statistics.median(sample.busy_us for sample in timing.samples) for timing in timings)
    return one, other


def _timed(calls: list[partial[object]], device: Device) -> tuple[list[Callable[[], object]], Callable[[], None]]:
    """What is timed, and what runs before each launch: graphs and a flush of the cache on a GPU, calls and nothing on a CPU."""
    if not device.is_gpu:
        return list(calls), lambda: None
    import torch

    from tilebench_core.timing.gpu import CacheFlush, capture

    return [capture(call).replay for call in calls], CacheFlush(torch.cuda.get_device_properties(0).L2_cache_size)


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
    kernels = registry.kernel(operator, wanted.backend, wanted.provider).load(), kernel_of(wanted.file)
    failed, ratios = False, []
    dtypes = wanted.dtype.split(",") if wanted.dtype else operator.config.dtypes
    for case in [case for dtype in dtypes for case in select_cases(operator, dtype, wanted.cases)]:
        line = f"{operator.name} {case.dtype} {case.label}: "
        try:
            one, other = medians_in_turns(operator, backend, kernels, case, device, clock, wanted.samples)
        except WrongResult as wrong:
            failed = True
            print(f"{line}WRONG {wrong}", flush=True)
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
    except (RequestError, PluginError) as error:
        sys.exit(f"tilebench: {error}")
