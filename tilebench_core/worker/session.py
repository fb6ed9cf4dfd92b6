"""What lasts as long as the worker: the device, the backends, the clock, loaded operators and kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tilebench_core.backend import Backend
from tilebench_core.config import Limits, TuneSettings
from tilebench_core.definition import Definition
from tilebench_core.device import Device
from tilebench_core.kernel import Kernel
from tilebench_core.packs import Operator
from tilebench_core.registry import Registry, installed
from tilebench_core.roofline import Ceilings
from tilebench_core.timing import Clock, TimingSettings, clock_named
from tilebench_core.timing.gpu import CacheFlush
from tilebench_core.worker.messages import TaskMessage

__all__ = ["Session", "open_session", "session_settings"]


@dataclass
class Session:
    """The state of one worker process."""

    device: Device
    timing: TimingSettings
    tune: TuneSettings
    limits: Limits
    seed: int
    compile_for: str
    ceilings: Ceilings | None
    backends: dict[str, Backend]
    registry: Registry
    clock: Clock
    flush: CacheFlush | None
    nvml: Any
    results_dir: str
    campaign_dir: str
    compiled_offline: dict[Any, Any] = field(default_factory=dict)
    _definitions: dict[str, Definition] = field(default_factory=dict)
    _versions: dict[str, dict[str, str]] = field(default_factory=dict)

    def operator(self, task: TaskMessage) -> Operator:
        """The task's operator, with the configuration that was composed for it."""
        found = self.registry.operators[task.folder]
        return replace(found, config=replace(found.config, raw=task.config))

    def definition(self, operator: Operator) -> Definition:
        """The operator's code, loaded once."""
        if operator.folder not in self._definitions:
            self._definitions[operator.folder] = operator.load()
        return self._definitions[operator.folder]

    def reference(self, operator: Operator) -> Any:
        """The function that the operator's kernels are judged by."""
        own = self.definition(operator).reference
        return own if own is not None else self.kernel(operator, "torch", None).run

    def kernel(self, operator: Operator, backend: str, module: str | None) -> Kernel:
        """The kernel in `module`, or the first one of the operator on `backend`."""
        sources = self.registry.kernels_for(operator, backend)
        return next(source for source in sources if module in (None, source.module)).load()

    def versions(self, backend: str) -> dict[str, str]:
        """The versions that a backend reports, read once: they come from files."""
        if backend not in self._versions:
            self._versions[backend] = dict(self.backends[backend].versions())
        return self._versions[backend]

    def before_launch(self) -> None:
        """Evict the cache where the protocol wants it cold."""
        if self.flush is not None and self.timing.cold:
            self.flush()

    @contextlib.contextmanager
    def backend_session(self, names: list[str]) -> Iterator[None]:
        """Hold the sessions of all backends of a case."""
        with contextlib.ExitStack() as stack:
            for name in dict.fromkeys(names):
                stack.enter_context(self.backends[name].session())
            yield


def session_settings(config: Any, device: Device, ceilings: Ceilings | None, campaign_dir: str) -> dict[str, Any]:
    """The first message to a worker: everything that lasts as long as it does."""
    from dataclasses import asdict

    return {
        "device": asdict(device),
        "timing": asdict(config.timing),
        "tune": asdict(config.tune),
        "limits": asdict(config.limits),
        "seed": config.seed,
        "compile_for": config.device.compile_for,
        "ceilings": asdict(ceilings) if ceilings else None,
        "backends": {name: dict(options or {}) for name, options in config.backends.items()},
        "results_dir": config.results_dir,
        "campaign_dir": campaign_dir,
    }


def open_session(settings: Mapping[str, Any]) -> Session:
    """Set the worker up. Raises ClockError if the configured clock cannot be used."""
    device = Device(**{**settings["device"], "capability": tuple(settings["device"]["capability"])})
    registry = installed()
    timing = TimingSettings(**settings["timing"])
    backends = {
        name: registry.backend(name).value(registry.backend(name).value.Options(**options))
        for name, options in settings["backends"].items()
    }
    offered: dict[str, str] = {}
    for plugin in registry.backends.values():
        offered.update(plugin.value.clocks)
    clock = clock_named(timing.clock if device.is_gpu else timing.cpu_clock, offered)
    if timing.keep_profile:
        clock.profile_dir = Path(timing.profile_dir or f"{settings['campaign_dir']}/profiles")
    flush, nvml = None, None
    if device.is_gpu:
        import torch

        from tilebench_core.devices import nvml_handle

        clock.open()
        properties = torch.cuda.get_device_properties(0)
        device = replace(device, l2_bytes=properties.L2_cache_size, multiprocessors=properties.multi_processor_count)
        flush, nvml = CacheFlush(device.l2_bytes), nvml_handle(device.uuid)
    else:
        clock.open()
    return Session(
        device=device,
        timing=timing,
        tune=TuneSettings(**settings["tune"]),
        limits=Limits(**settings["limits"]),
        seed=settings["seed"],
        compile_for=settings["compile_for"],
        ceilings=Ceilings(**settings["ceilings"]) if settings["ceilings"] else None,
        backends=backends,
        registry=registry,
        clock=clock,
        flush=flush,
        nvml=nvml,
        results_dir=settings["results_dir"],
        campaign_dir=settings["campaign_dir"],
    )
