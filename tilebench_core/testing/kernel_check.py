"""Verify kernels from the shell: `python -m tilebench_core.testing.kernel_check softmax triton --device cpu`.

Prints one line per case and exits with 1 if any fails. On a CPU the smoke case and the first two small edge cases are
the default, since interpreters are slow.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from functools import partial
from typing import Any

from tilebench_core.case import Case
from tilebench_core.device import CPU, Device
from tilebench_core.errors import RequestError
from tilebench_core.packs import Operator
from tilebench_core.registry import Registry, installed

__all__ = ["check_cases", "main", "select_cases"]


def reference_of(registry: Registry, operator: Operator) -> Any:
    """The function that judges the operator: its own reference, or the `torch` kernel."""
    own = operator.load().reference
    return own if own is not None else registry.kernel(operator, "torch").load().run


def select_cases(operator: Operator, dtype: str, kinds: str) -> list[Case]:
    """The cases named by `kinds`: a comma-separated list of smoke, edge, grid, first, largest, or edgeN or N for one of them.

    Raises RequestError for anything else.
    """
    chosen: list[Case] = []
    for kind in kinds.split(","):
        if kind in ("smoke", "edge", "grid"):
            chosen += operator.config.cases(dtype, kind)
        elif kind == "first":
            chosen.append(operator.config.cases(dtype)[0])
        elif kind == "largest":
            chosen.append(operator.config.largest(dtype))
        else:
            place = kind.removeprefix("edge")
            if not place.isdigit():
                raise RequestError(f"cases {kind!r}; expected smoke, edge, grid, first, largest, edgeN or N")
            among = operator.config.cases(dtype, "grid" if place == kind else "edge")
            found = [case for case in among if case.index == int(place)]
            if place == kind and not found:
                raise RequestError(f"cases {kind!r}; the grid of {operator.name} has places 0 to {len(among) - 1}")
            chosen += found
    return chosen


def check_cases(
    operator: Operator, backend_name: str, cases: list[Case], device: Device, config: Any = None, provider: str = ""
) -> list[str]:
    """Verify the kernel of `backend_name` (the first, or that of `provider`) on `cases`; print a line each, return failures."""
    from tilebench_core.verify import precision_state, prepare_case, verify_launch

    registry = installed()
    backend = registry.backend(backend_name).value()
    kernel = registry.kernel(operator, backend_name, provider).load()
    failures = []
    for case in cases:
        reason = kernel.unsupported(case, device)
        if reason is not None:
            print(f"{operator.name} {case.dtype} {case.kind} {case.label}: UNSUPPORTED: {reason}")
            continue
        chosen = config or kernel.default(case)
        precision = operator.config.precision(case.dtype)

        def tolerance(dtype: str, case: Case = case) -> Any:
            return operator.config.tolerance(case, dtype)

        with precision_state("fp32"):
            prepared = prepare_case(
                case, operator.load(), reference_of(registry, operator), tolerance, device.torch_name, 0
            )
        with precision_state(precision), backend.session():
            compilation = backend.compile(kernel, prepared.inputs, chosen)
            verdict = verify_launch(prepared, partial(backend.launch, kernel, prepared.inputs, chosen))
        found = verdict.comparison
        line = f"{operator.name} {case.dtype} {case.kind} {case.label} {dict(chosen)}"
        line += f": {'passed' if verdict.passed else 'WRONG ' + str(verdict.check)}"
        line += (
            f" abs {found.max_abs_err if found.max_abs_err is not None else math.nan:.2e} {compilation.seconds:.1f}s"
        )
        print(line if verdict.passed else f"{line} {verdict.message}", flush=True)
        if not verdict.passed:
            failures.append(line)
    return failures


def main(arguments: list[str] | None = None) -> int:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operator", help="one, or several separated by commas")
    parser.add_argument("backend")
    parser.add_argument("--dtype", default="")
    parser.add_argument(
        "--cases", default="smoke,edge0,edge1", help="smoke, edge, edgeN, grid, N, first, largest; comma-separated"
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--provider", default="", help="the distribution whose kernel is checked, if several ship one")
    wanted = parser.parse_args(arguments)
    registry = installed()
    device = CPU
    if wanted.device == "cuda":
        from tilebench_core.devices import find_device

        device = find_device("cuda:0")
    for name, value in registry.backend(wanted.backend).value().environment(device).items():
        os.environ[name] = value
    failures = []
    for operator in [registry.operator(name) for name in wanted.operator.split(",")]:
        dtypes = wanted.dtype.split(",") if wanted.dtype else operator.config.dtypes
        cases = [case for dtype in dtypes for case in select_cases(operator, dtype, wanted.cases)]
        failures += check_cases(operator, wanted.backend, cases, device, provider=wanted.provider)
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RequestError as error:
        sys.exit(f"tilebench: {error}")
