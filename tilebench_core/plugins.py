"""The one door to stevedore: which backends and operator packs are installed, and which are broken.

Everything that was announced is kept: a plugin that cannot be used stays visible, with its distribution and reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

from stevedore import ExtensionManager

from tilebench_core.backend import PLUGIN_API, Backend

__all__ = [
    "BACKENDS",
    "LLM_PROVIDERS",
    "PACKS",
    "BrokenPlugin",
    "Plugin",
    "Provider",
    "check_backend",
    "discover",
    "load_plugins",
]

BACKENDS = "tilebench.backends"
PACKS = "tilebench.operator_packs"
LLM_PROVIDERS = "tilebench.llm_providers"


@dataclass(frozen=True, order=True)
class Provider:
    """The distribution that something came from."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class Plugin:
    """A usable entry point: its name, what it loads to, and the distribution it came from."""

    name: str
    value: Any
    provider: Provider


@dataclass(frozen=True)
class BrokenPlugin:
    """An entry point that cannot be used, with the reason in one line."""

    name: str
    group: str
    provider: Provider
    reason: str


def _provider(entry_point: EntryPoint) -> Provider:
    dist = entry_point.dist
    if dist is None:
        return Provider("(unknown distribution)", "")
    # Names compare as PyPI compares them: one spelling for "a_b", "a.b" and "A-b".
    return Provider(re.sub(r"[-_.]+", "-", dist.name).lower(), dist.version)


def check_backend(value: Any) -> str | None:
    """Return why `value` is no usable backend class, or None."""
    if not (isinstance(value, type) and issubclass(value, Backend)):
        return f"{value!r} is no subclass of tilebench_core.Backend"
    if value.api != PLUGIN_API:
        return f"written for plugin API {value.api}, this TileBench has {PLUGIN_API}; install matching versions"
    if not getattr(value, "name", ""):
        return f"{value.__name__} has no name"
    return None


def check_pack(value: Any) -> str | None:
    """Return why `value` is no usable operator pack, or None."""
    if not isinstance(value, ModuleType) or not hasattr(value, "__path__"):
        return f"{value!r} is no Python package"
    api = getattr(value, "TILEBENCH_API", PLUGIN_API)
    return (
        None
        if api == PLUGIN_API
        else f"written for plugin API {api}, this TileBench has {PLUGIN_API}; install matching versions"
    )


def check_llm_provider(value: Any) -> str | None:
    """Return why `value` is no usable provider of language models, or None."""
    if not isinstance(value, type) or not callable(getattr(value, "send", None)):
        return f"{value!r} is no subclass of tilebench_core.llm.provider.Provider"
    api = getattr(value, "api", None)
    if api != PLUGIN_API:
        return f"written for plugin API {api}, this TileBench has {PLUGIN_API}; install matching versions"
    return None if getattr(value, "name", "") else f"{value.__name__} has no name"


_CHECKS = {BACKENDS: check_backend, PACKS: check_pack, LLM_PROVIDERS: check_llm_provider}


def discover(group: str) -> tuple[list[EntryPoint], list[tuple[EntryPoint, BaseException]], dict[str, Any]]:
    """Load the entry points of `group` through stevedore: those that loaded, those that failed, and what they load to."""
    failures: list[tuple[EntryPoint, BaseException]] = []
    manager = ExtensionManager(
        group,
        invoke_on_load=False,
        on_load_failure_callback=lambda _manager, entry_point, error: failures.append((entry_point, error)),
    )
    # stevedore's cache of entry points forgets which distribution each came from; the metadata knows.
    known = {(entry_point.name, entry_point.value): entry_point for entry_point in entry_points(group=group)}

    def with_dist(entry_point: EntryPoint) -> EntryPoint:
        return known.get((entry_point.name, entry_point.value), entry_point)

    loaded = [with_dist(extension.entry_point) for extension in manager]
    values = {f"{e.entry_point.name}@{e.entry_point.value}": e.plugin for e in manager}
    return loaded, [(with_dist(entry_point), error) for entry_point, error in failures], values


def load_plugins(
    group: str,
    loaded: Iterable[EntryPoint],
    failures: Iterable[tuple[EntryPoint, BaseException]],
    values: dict[str, Any],
) -> tuple[list[Plugin], list[BrokenPlugin]]:
    """Sort what was found into usable and broken plugins; two of one name are both broken, never one of them chosen."""
    good: list[Plugin] = []
    broken = [
        BrokenPlugin(entry_point.name, group, _provider(entry_point), f"{type(error).__name__}: {error}")
        for entry_point, error in failures
    ]
    for entry_point in loaded:
        value, provider = values[f"{entry_point.name}@{entry_point.value}"], _provider(entry_point)
        reason = _CHECKS[group](value)
        if reason is None and group == BACKENDS and value.name != entry_point.name:
            reason = f"the entry point is called {entry_point.name!r} and the backend {value.name!r}; they must agree"
        if reason is None:
            good.append(Plugin(entry_point.name, value, provider))
        else:
            broken.append(BrokenPlugin(entry_point.name, group, provider, reason))
    names = [plugin.name for plugin in good]
    for plugin in [plugin for plugin in good if names.count(plugin.name) > 1]:
        others = ", ".join(str(p.provider) for p in good if p.name == plugin.name and p is not plugin)
        broken.append(
            BrokenPlugin(plugin.name, group, plugin.provider, f"the name is also taken by {others}; uninstall one")
        )
    return [plugin for plugin in good if names.count(plugin.name) == 1], broken
