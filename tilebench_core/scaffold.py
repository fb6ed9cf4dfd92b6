"""`tilebench new operator|kernel|backend NAME`: a skeleton that works, to be changed step by step."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from tilebench_core.errors import RequestError
from tilebench_core.registry import installed

__all__ = ["new_backend", "new_command", "new_kernel", "new_operator"]


def new_command(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """`tilebench new`."""
    parser.add_argument("kind", choices=["operator", "kernel", "backend"])
    parser.add_argument("name", help="the operator's, for a kernel OPERATOR:BACKEND, or the backend's")
    parser.add_argument(
        "--into", type=Path, default=Path(), help="the pack's package folder, or for a backend its parent"
    )
    wanted = parser.parse_args(arguments)
    make = {"operator": new_operator, "kernel": new_kernel, "backend": new_backend}[wanted.kind]
    for path in make(wanted.name, wanted.into):
        print(path)
    return 0


def _identifier(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise RequestError(f"{name!r}: expected lower-case letters, digits and underscores, such as fused_gelu")
    return name


def _write(files: dict[Path, str]) -> list[Path]:
    for path in files:
        if path.exists():
            raise RequestError(f"{path} exists; nothing was written")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(files)


def new_operator(name: str, into: Path) -> list[Path]:
    """Write an operator's folder: y = 2·x, to be replaced."""
    folder = into / _identifier(name)
    return _write(
        {
            folder / "__init__.py": "",
            folder / "operator.py": _OPERATOR.replace("NAME", name),
            folder / "config.yaml": _CONFIG.replace("NAME", name),
            folder / "impl_torch.py": _TORCH.replace("NAME", name),
        }
    )


def new_kernel(name: str, into: Path) -> list[Path]:
    """Write a kernel's file for OPERATOR:BACKEND; the backend must be installed."""
    operator_name, _, backend = name.partition(":")
    if not backend:
        raise RequestError(f"{name!r}: expected OPERATOR:BACKEND, such as softmax:mydsl")
    operator = installed().operator(operator_name)
    installed().backend(backend)
    folder = into / operator.folder
    text = _KERNEL.replace("OPERATOR", operator.name).replace("BACKEND", backend)
    files = {folder / f"impl_{backend}.py": text}
    if not (folder / "__init__.py").exists():
        files[folder / "__init__.py"] = ""
    return _write(files)


def new_backend(name: str, into: Path) -> list[Path]:
    """Write a distribution with a backend, its tests, and a pack for its kernels."""
    package = f"tilebench_{_identifier(name)}"
    root = into / f"tilebench-{name.replace('_', '-')}"
    values = {
        "DISTRIBUTION": root.name,
        "PACKAGE": package,
        "CLASS": f"{name.title().replace('_', '')}Backend",
        "NAME": name,
    }

    def filled(text: str) -> str:
        for key, value in values.items():
            text = text.replace(key, value)
        return text

    return _write(
        {
            root / "pyproject.toml": filled(_PYPROJECT),
            root / "README.md": filled(
                "# DISTRIBUTION\n\nThe NAME backend of TileBench: `pip install DISTRIBUTION`.\n"
            ),
            root / "src" / package / "__init__.py": filled('"""The NAME backend of TileBench."""\n'),
            root / "src" / package / "backend.py": filled(_BACKEND),
            root / "src" / f"{package}_kernels" / "__init__.py": filled(
                '"""Kernels written in NAME; a folder per operator."""\n'
            ),
            root / "tests" / "test_backend.py": filled(_BACKEND_TEST),
        }
    )


_OPERATOR = '''"""NAME: y = 2·x. Replace this by the mathematics, with the shapes and dtypes of every input and output.

Input: x [n] in the case's dtype, N(0, 1). Output: y [n] in the same dtype. F = n, Q = 2·n·s.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor]:
    """Return x [n]."""
    return (draw.normal(case["n"], dtype=case.dtype),)


OPERATOR = Definition(inputs=inputs)
'''

_CONFIG = """name: NAME
category: pointwise  # pointwise, reduction, matmul, stencil or layout
origin: own
description: y = 2·x

dtypes: [fp16, fp32]
case_grid:
  n: {expr: "[1048576 * i for i in range(1, 21)]"}
edge_cases:
  - {n: 1}
  - {n: 1023}
smoke: {n: 3000}

metrics:
  flops_expr: n
  bytes_expr: 2 * n * dtype_size
"""

_TORCH = '''"""NAME in PyTorch: the reference and the baseline."""

import torch
from tilebench_core import Kernel


def run(x: torch.Tensor) -> torch.Tensor:
    """Return y = 2·x, both [n]."""
    return 2 * x


KERNEL = Kernel(run=run)
'''

_KERNEL = '''"""OPERATOR in BACKEND."""

from tilebench_core import Case, Config, Device, Kernel


def run(*inputs, **config):
    """Take the operator's inputs, then the configuration; return freshly allocated outputs."""
    raise NotImplementedError("write the kernel here; all of run is timed")


def default(case: Case) -> Config:
    return {}


def space(case: Case) -> list[Config]:
    return []


def unsupported(case: Case, device: Device) -> str | None:
    return "the kernel is not written yet"


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
'''

_PYPROJECT = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "DISTRIBUTION"
version = "0.1.0"
description = "The NAME backend of TileBench"
requires-python = ">=3.10"
dependencies = ["tilebench>=0.1,<0.2"]

[project.entry-points."tilebench.backends"]
NAME = "PACKAGE.backend:CLASS"

[project.entry-points."tilebench.operator_packs"]
DISTRIBUTION = "PACKAGE_kernels"
"""

_BACKEND = '''"""The NAME backend."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, ClassVar

from tilebench_core import Backend, Compilation, Config, Device, Kernel, LaunchError


class CLASS(Backend):
    """Runs kernels from files called impl_NAME.py."""

    name: ClassVar[str] = "NAME"
    install: ClassVar[str] = "pip install DISTRIBUTION"

    def probe(self, device: Device) -> str | None:
        """None where kernels can run, else the reason and the command that would mend it."""
        return None

    def versions(self) -> Mapping[str, str]:
        """The versions of everything that can change the generated code."""
        return {"DISTRIBUTION": version("DISTRIBUTION")}

    def compile(self, kernel: Kernel, inputs: Sequence[Any], config: Config) -> Compilation:
        """Call the kernel once, outside any timing; turn the DSL's exceptions into ours."""
        start = time.perf_counter()
        try:
            kernel.run(*inputs, **config)
        except Exception as error:
            raise LaunchError(f"{type(error).__name__}: {error}") from error
        return Compilation(seconds=time.perf_counter() - start)
'''

_BACKEND_TEST = '''"""The backend against the contract that all backends keep."""

import pytest
from PACKAGE.backend import CLASS
from tilebench_core.testing.backend_contract import BackendContract


class TestCLASS(BackendContract):
    @pytest.fixture
    def backend(self):
        return CLASS()
'''
