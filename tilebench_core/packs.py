"""What an operator pack holds, found by paths alone: no operator and no kernel is imported here."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType

from tilebench_core.definition import Definition
from tilebench_core.errors import ConfigError, PluginError
from tilebench_core.kernel import Kernel
from tilebench_core.operator_config import OperatorConfig, load_yaml, parse_operator_config
from tilebench_core.plugins import Plugin, Provider

__all__ = ["KernelSource", "Operator", "exported_kernel", "scan_pack"]


def exported_kernel(module: ModuleType, path: Path) -> Kernel:
    """The `KERNEL` of the module of the file `path`. Raises PluginError if there is none."""
    kernel = getattr(module, "KERNEL", None)
    if not isinstance(kernel, Kernel):
        raise PluginError(f"{path}: exports no `KERNEL = Kernel(run=..., ...)`")
    return kernel


@dataclass(frozen=True)
class KernelSource:
    """One kernel as a file: for which operator (by folder) and backend, and the distribution that provides it."""

    folder: str
    backend: str
    provider: Provider
    module: str
    path: Path

    def load(self) -> Kernel:
        """Import the kernel, and with it its DSL. Raises PluginError if the module exports no KERNEL."""
        return exported_kernel(import_module(self.module), self.path)

    @cached_property
    def source_hash(self) -> str:
        """A hash of the kernel's file and of every module of its own package that it imports, directly or not."""
        digest = hashlib.sha256()
        for path in sorted(_own_modules(self.path, self.module.partition(".")[0], self.path.parent.parent, set())):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
        return digest.hexdigest()[:16]


def _own_modules(path: Path, package: str, root: Path, seen: set[Path]) -> set[Path]:
    """`path` and the files below `root` that it imports as modules of `package`, found in its text, not by importing."""
    seen.add(path)
    for line in path.read_text(encoding="utf-8").splitlines():
        found = re.match(rf"\s*(?:from|import)\s+{re.escape(package)}((?:\.\w+)*)(?:\s+import\s+(.+))?", line)
        if found is None:
            continue
        base = root.joinpath(*found.group(1).split(".")[1:])
        names = re.findall(r"\w+", found.group(2) or "")
        for candidate in [base.with_suffix(".py"), *(base / f"{name}.py" for name in names)]:
            if candidate.is_file() and candidate not in seen:
                _own_modules(candidate, package, root, seen)
    return seen


@dataclass(frozen=True)
class Operator:
    """An operator as a pack defines it: its checked configuration and, on demand, its code."""

    folder: str
    config: OperatorConfig
    provider: Provider
    module: str
    path: Path

    @property
    def name(self) -> str:
        """The operator's published name, e.g. "1d_conv" (its folder is `conv1d`)."""
        return str(self.config.raw["name"])

    def load(self) -> Definition:
        """Import `operator.py`. Raises PluginError if it exports no OPERATOR."""
        definition = getattr(import_module(self.module), "OPERATOR", None)
        if not isinstance(definition, Definition):
            raise PluginError(f"{self.path}: exports no `OPERATOR = Definition(inputs=..., ...)`")
        return definition


def scan_pack(pack: Plugin) -> Iterator[Operator | KernelSource | ConfigError]:
    """Yield the operators and kernels in the folders of a pack, and a ConfigError for each malformed `config.yaml`."""
    root = Path(next(iter(pack.value.__path__)))
    package = pack.value.__name__
    for folder in sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith(("_", "."))):
        if (folder / "config.yaml").is_file():
            try:
                config_path = folder / "config.yaml"
                config = parse_operator_config(load_yaml(config_path), str(config_path), folder.name)
                yield Operator(
                    folder.name, config, pack.provider, f"{package}.{folder.name}.operator", folder / "operator.py"
                )
            except ConfigError as error:
                yield error
        for path in sorted(folder.glob("impl_*.py")):
            backend = path.stem.removeprefix("impl_")
            yield KernelSource(folder.name, backend, pack.provider, f"{package}.{folder.name}.{path.stem}", path)
