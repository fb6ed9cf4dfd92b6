"""Kernels without a GPU: Triton's in its interpreter, and every DSL's default configuration compiled for each target."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tilebench_core.packs import Operator
from tilebench_core.registry import installed
from tilebench_core.testing.compile_check import compile_case

OURS = [o for o in installed().operators.values() if o.provider.name == "tilebench-operators"]
# A compiler is loaded once per process, so a DSL's tests stay together; Triton's are split over the workers.
TARGETS = {"triton": ("sm_80", "sm_90", "sm_100"), "cutile": ("sm_90", "sm_100"), "tilelang": ("sm_90",)}
WRITTEN = {(kernel.folder, kernel.backend) for kernel in installed().kernels}
COMPILED = [
    pytest.param(operator, backend, dtype, arch, id=f"{operator.folder}-{backend}-{dtype}-{arch}")
    for backend, archs in TARGETS.items()
    for operator in OURS
    if (operator.folder, backend) in WRITTEN
    for dtype in operator.config.dtypes
    for arch in archs
]


# Loading PyTorch and Triton takes longer than most kernels: five operators share a process.
GROUPS = [OURS[start : start + 5] for start in range(0, len(OURS), 5)]


@pytest.mark.parametrize("operators", GROUPS, ids=lambda group: "-".join(operator.folder for operator in group))
def test_the_triton_kernels_are_right_in_the_interpreter(operators: list[Operator]) -> None:
    names = ",".join(operator.name for operator in operators)
    command = [sys.executable, "-m", "tilebench_core.testing.kernel_check", names, "triton"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    passed = [line for line in done.stdout.splitlines() if ": passed" in line]
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    for operator in operators:
        ours = [line for line in passed if line.startswith(f"{operator.name} ")]
        assert len(ours) >= 3 * len(operator.config.dtypes), operator.name


@pytest.mark.parametrize(("operator", "backend", "dtype", "arch"), COMPILED)
def test_the_default_configuration_compiles(operator: Operator, backend: str, dtype: str, arch: str) -> None:
    if backend not in installed().backends:
        pytest.skip(f"tilebench-{backend} is not installed")
    case = operator.config.cases(dtype)[0]
    kernel = installed().kernel(operator, backend).load()
    usable, line = compile_case(operator, backend, case, kernel.default(case), arch)
    assert usable, line
