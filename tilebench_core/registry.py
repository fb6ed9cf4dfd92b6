"""Everything that is installed, as one value: backends, operators, kernels, and what is broken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from tilebench_core.errors import ConfigError, RequestError, nearest
from tilebench_core.packs import KernelSource, Operator, scan_pack
from tilebench_core.plugins import BACKENDS, PACKS, BrokenPlugin, Plugin, discover, load_plugins

__all__ = ["Registry", "build_registry", "installed"]


@dataclass(frozen=True)
class Registry:
    """Backends by name, operators by folder, kernels as (operator folder, backend, provider), and broken plugins."""

    backends: dict[str, Plugin]
    operators: dict[str, Operator]
    kernels: tuple[KernelSource, ...]
    broken: tuple[BrokenPlugin, ...]

    def operator(self, name: str) -> Operator:
        """Find an operator by its published name or its folder; raise RequestError with the nearest match."""
        for operator in self.operators.values():
            if name in (operator.name, operator.folder):
                return operator
        for plugin in self.broken:
            if plugin.group == PACKS and f"/{name}/config.yaml" in plugin.reason:
                raise RequestError(f"operator {name!r} of {plugin.provider} is broken: {plugin.reason}")
        known = [known.name for known in self.operators.values()]
        raise RequestError(
            f"unknown operator {name!r}; `tilebench list` shows the {len(known)} installed.{nearest(name, known)}"
        )

    def backend(self, name: str) -> Plugin:
        """Find a backend by name; raise RequestError with the reason if it is broken, or the nearest match."""
        if name in self.backends:
            return self.backends[name]
        for plugin in self.broken:
            if plugin.group == BACKENDS and plugin.name == name:
                raise RequestError(f"backend {name!r} of {plugin.provider} is broken: {plugin.reason}")
        raise RequestError(
            f"unknown backend {name!r}; installed: {', '.join(sorted(self.backends)) or 'none'}.{nearest(name, self.backends)}"
            f" A backend is its own distribution: pip install tilebench-{name}"
        )

    def kernels_for(self, operator: Operator, backend: str) -> list[KernelSource]:
        """All kernels for one operator and backend, one per provider."""
        files = getattr(self.backends[backend].value, "kernels_of", "") or backend
        return [kernel for kernel in self.kernels if kernel.folder == operator.folder and kernel.backend == files]

    def kernel(self, operator: Operator, backend: str, provider: str = "") -> KernelSource:
        """The kernel that the distribution `provider` ships, or without one the first. Raises RequestError if there is none."""
        found = self.kernels_for(operator, backend)
        for kernel in found:
            if provider in ("", kernel.provider.name):
                return kernel
        those = ", ".join(kernel.provider.name for kernel in found) or "nobody"
        by = f" by {provider}" if provider else ""
        raise RequestError(f"{operator.name} on {backend} has no kernel{by}; kernels come from {those}")


def build_registry(backends: Iterable[Plugin], packs: Iterable[Plugin], broken: Iterable[BrokenPlugin]) -> Registry:
    """Scan the packs and put everything together; an operator that two packs define is broken in the second."""
    problems = list(broken)
    operators: dict[str, Operator] = {}
    kernels: list[KernelSource] = []
    for pack in packs:
        for found in scan_pack(pack):
            if isinstance(found, KernelSource):
                kernels.append(found)
            elif isinstance(found, ConfigError):
                problems.append(BrokenPlugin(pack.name, PACKS, pack.provider, str(found)))
            elif found.folder in operators:
                reason = f"operator {found.name!r} is already defined by {operators[found.folder].provider}"
                problems.append(BrokenPlugin(pack.name, PACKS, pack.provider, reason))
            else:
                operators[found.folder] = found
    by_name = {plugin.name: plugin for plugin in sorted(backends, key=lambda plugin: plugin.name)}
    return Registry(by_name, dict(sorted(operators.items())), tuple(kernels), tuple(problems))


@lru_cache(maxsize=1)
def installed() -> Registry:
    """The registry of this environment, built once per process."""
    backends, broken_backends = load_plugins(BACKENDS, *discover(BACKENDS))
    packs, broken_packs = load_plugins(PACKS, *discover(PACKS))
    return build_registry(backends, packs, [*broken_backends, *broken_packs])
