"""Registries without packaging: a pack is a folder, and a backend a class."""

from __future__ import annotations

import types
from pathlib import Path

from tilebench_core.backend import Backend, Compilation
from tilebench_core.plugins import Plugin, Provider
from tilebench_core.registry import Registry, build_registry

__all__ = ["backend_class", "pack_of", "plugin", "registry_of", "write_operator"]

CONFIG = """\
name: {name}
category: pointwise
origin: own
dtypes: [fp32, fp16]
case_grid:
  n: {n}
edge_cases:
  - {{n: 1}}
smoke: {{n: 8}}
metrics: {{flops_expr: n, bytes_expr: 2 * n * dtype_size}}
"""


def backend_class(name: str, **attributes) -> type[Backend]:
    members = {
        "name": name,
        "probe": lambda self, device: None,
        "versions": lambda self: {name: "1"},
        "compile": lambda self, kernel, inputs, config: Compilation(seconds=0.0),
        **attributes,
    }
    return type(f"{name.title()}Backend", (Backend,), members)


def plugin(name: str, **attributes) -> Plugin:
    return Plugin(name, backend_class(name, **attributes), Provider(f"tilebench-{name}", "1.0"))


def pack_of(folder: Path, distribution: str = "my-pack", version: str = "1.0") -> Plugin:
    package = types.ModuleType(folder.name)
    package.__path__ = [str(folder)]
    return Plugin(distribution, package, Provider(distribution, version))


def write_operator(
    pack: Path, name: str, config: str | None = None, kernels=("torch",), n: str = "[8, 16, 24]"
) -> Path:
    folder = pack / name
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(config or CONFIG.format(name=name, n=n))
    (folder / "operator.py").write_text("OPERATOR = None\n")
    for backend in kernels:
        (folder / f"impl_{backend}.py").write_text("KERNEL = None\n")
    return folder


def registry_of(folder: Path, backends=("torch", "one")) -> Registry:
    return build_registry([plugin(name) for name in backends], [pack_of(folder)], [])
