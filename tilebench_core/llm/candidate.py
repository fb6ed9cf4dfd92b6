"""A candidate as a distribution of its own: found by the registry of the worker as every other provider of kernels is."""

from __future__ import annotations

import json
from pathlib import Path

from tilebench_core.llm.archive import digest
from tilebench_core.packs import KernelSource, Operator
from tilebench_core.plugins import Provider
from tilebench_core.registry import Registry

__all__ = ["PACKAGE", "candidate_registry", "kernel_names", "write_site"]

PACKAGE = "tilebench_llm_candidate"
_DISTRIBUTION = "tilebench-llm-candidate"

_SHIM = '''"""The candidate in {module}.py, loaded under guard."""

from tilebench_core.llm.guard import guarded

KERNEL = guarded("{package}.{folder}.{module}", kernels={kernels}, interpreted={interpreted})
'''


def kernel_names(source: str, backend: str) -> list[str]:
    """The names of the functions that are kernels of the DSL."""
    import ast

    from tilebench_core.llm.compliance import rules_for
    from tilebench_core.llm.compliance_names import read_module

    module = read_module(ast.parse(source), rules_for(backend))
    device = {getattr(node, "name", "") for node in module.device}
    return sorted(module.kernels | (device - {""}))


def write_site(site: Path, operator: Operator, backend: str, source: str, interpreted: bool) -> KernelSource:
    """Write the distribution into the empty folder `site` and return its kernel."""
    version = f"0+{digest(source)[:12]}"
    folder = site / PACKAGE / operator.folder
    folder.mkdir(parents=True)
    module = f"candidate_{backend}"
    shim = _SHIM.format(
        module=module, package=PACKAGE, folder=operator.folder, kernels=json.dumps(kernel_names(source, backend)),
        interpreted=interpreted,
    )  # fmt: skip
    files = {
        site / PACKAGE / "__init__.py": '"""One candidate."""\n',
        folder / "__init__.py": "",
        folder / f"{module}.py": source,
        folder / f"impl_{backend}.py": shim,
        site
        / f"{PACKAGE}-{version}.dist-info"
        / "METADATA": f"Metadata-Version: 2.1\nName: {_DISTRIBUTION}\nVersion: {version}\n",
        site
        / f"{PACKAGE}-{version}.dist-info"
        / "entry_points.txt": f"[tilebench.operator_packs]\n{_DISTRIBUTION} = {PACKAGE}\n",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return KernelSource(
        operator.folder, backend, Provider(_DISTRIBUTION, version), f"{PACKAGE}.{operator.folder}.impl_{backend}",
        folder / f"impl_{backend}.py",
    )  # fmt: skip


def candidate_registry(registry: Registry, operator: Operator, kernel: KernelSource) -> Registry:
    """What the plan is made from: one operator, and the candidate as its only kernel. Nothing is imported."""
    return Registry(registry.backends, {operator.folder: operator}, (kernel,), ())
