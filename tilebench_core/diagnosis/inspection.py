"""`tilebench inspect`: a kernel compiled for a GPU that need not be here, as code and numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tilebench_core.case import Case
from tilebench_core.device import target_device
from tilebench_core.diagnosis.code import KernelCode, kernel_codes
from tilebench_core.errors import BackendError, RequestError, TilebenchError, nearest
from tilebench_core.precompile.unfilled import UnfilledDraw
from tilebench_core.registry import Registry

__all__ = ["Inspection", "Target", "inspect_target"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """What to look at: one kernel's `run` for one case and configuration, compiled for `arch`; `config` None: the default."""

    operator: str
    backend: str
    case: Case
    arch: str
    config: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What came of a target: its kernels, or the reason why there are none. `source` is the hash of the kernel's source."""

    target: Target
    provider: str | None = None
    source: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    compile_s: float | None = None
    kernels: tuple[KernelCode, ...] = ()
    reason: str | None = None

    def as_json(self) -> dict[str, Any]:
        """A JSON-able mapping, without listings and texts."""
        target = self.target
        return {
            "operator": target.operator, "dtype": target.case.dtype, "params": dict(target.case.params),
            "backend": target.backend, "provider": self.provider, "source": self.source, "arch": target.arch,
            "config": dict(self.config), "compile_s": self.compile_s, "reason": self.reason,
            "kernels": [kernel.as_json() for kernel in self.kernels],
        }  # fmt: skip


def inspect_target(
    registry: Registry, target: Target, overrides: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None, lenient: bool = False,
) -> Inspection:  # fmt: skip
    """Compile and disassemble. `overrides` replace keys of the configuration, `options` those of the backend.

    What the kernel or its compiler refuses becomes the Inspection's `reason`; a missing disassembler is raised, as
    ToolMissing, since nothing could be inspected then. RequestError names a key that the configuration has not, unless
    `lenient` leaves such keys out.
    """
    operator = registry.operator(target.operator)
    plugin = registry.backend(target.backend)
    sources = registry.kernels_for(operator, target.backend)
    if not sources:
        return Inspection(
            target=target, reason=f"no installed pack holds a kernel of {operator.name} for {target.backend}"
        )
    backend = plugin.value(plugin.value.Options(**{**plugin.value.inspection, **(options or {})}))
    # Read below, when the DSL is imported or compiles.
    os.environ.update(backend.environment(target_device(target.arch)))
    found = Inspection(target=target, provider=str(sources[0].provider), source=sources[0].source_hash)
    try:
        kernel = sources[0].load()
        unsupported = kernel.unsupported(target.case, target_device(target.arch))
        if unsupported is not None:
            return replace(found, reason=f"unsupported: {unsupported}")
        config = dict(target.config if target.config is not None else kernel.default(target.case))
        for key, value in (overrides or {}).items():
            if key not in config and lenient:
                continue
            if key not in config:
                raise RequestError(
                    f"config.{key}: the configuration of {operator.name} on {target.backend} has "
                    f"{', '.join(config) or 'no keys'}.{nearest(key, config)}"
                )
            config[key] = value
        inputs = operator.load().inputs(target.case, UnfilledDraw())
        compilation = backend.compile_for(kernel, inputs, config, target.arch)
        kernels = tuple(kernel_codes(compilation.launches))
    except ImportError as error:
        return replace(found, reason=f"{error}: {plugin.value.install or 'install the backend'}")
    except (BackendError, NotImplementedError) as error:
        return replace(found, reason=f"{type(error).__name__}: {error}")
    if not kernels:
        raise TilebenchError(f"{operator.name} on {target.backend}: `run` launched no kernel of the backend")
    return replace(found, config=config, compile_s=compilation.seconds, kernels=kernels)
