"""The contract of a backend: a DSL that kernels are written in."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tilebench_core.device import Device
from tilebench_core.errors import NotTunable
from tilebench_core.kernel import Config, Kernel

__all__ = [
    "PLUGIN_API",
    "Backend",
    "Compilation",
    "LaunchCode",
    "NativeCandidate",
    "NativeSearch",
    "NoOptions",
    "Resources",
]

PLUGIN_API = 1
"""The version of the contracts of backends and packs. A plugin with another one is refused, by name."""


@dataclass(frozen=True)
class NoOptions:
    """The options of a backend that has none."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What the compiler reports of one compiled kernel; None where it does not say.

    `dynamic_shared_bytes` is the part of the shared memory that a launch asks for, which no binary declares.
    """

    registers: int | None = None
    shared_bytes: int | None = None
    dynamic_shared_bytes: int | None = None
    spill_bytes: int | None = None
    stack_bytes: int | None = None
    threads: int | None = None


@dataclass(frozen=True, kw_only=True)
class LaunchCode:
    """One kernel that `run` launched: its name, its resources, and its code as named stages (text, or bytes for a binary)."""

    name: str
    resources: Resources = Resources()
    stages: Mapping[str, str | bytes] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """What one compilation of a kernel's `run` took and gave."""

    seconds: float
    launches: tuple[LaunchCode, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NativeCandidate:
    """One configuration as the DSL's own tuner saw it: a time by the tuner's own clock, or why it has none."""

    config: Config
    time_us: float | None = None
    failure: str | None = None
    compile_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class NativeSearch:
    """What the DSL's own tuner did. `tuner` names it, `measured` says what its times are.

    `candidates` holds every configuration that it was given, in that order; `winner` is the one that it chose.
    """

    tuner: str
    measured: str
    winner: Config
    candidates: tuple[NativeCandidate, ...]

    def __post_init__(self) -> None:
        if not any(c.config == self.winner and c.time_us is not None for c in self.candidates):
            raise ValueError(f"{self.tuner} chose {dict(self.winner)}, which it was not given or has not timed")


class Backend(ABC):
    """A DSL. A subclass lives in its own distribution and is announced in the entry-point group `tilebench.backends`.

    Importing its module must cost nothing: the DSL is imported inside the methods. `name` is what users type and the
    suffix of kernel files (`impl_<name>.py`). `Options` is a dataclass that appears in the configuration as
    `backends.<name>`. `kernels_of` names another backend whose kernel files this one runs, if it has none of its own.
    `clocks` offers clocks that come with the DSL, name → "module:class". `install` is the command that installs what `probe` misses.
    `inspection` holds the options with which `compile_for` goes as far as it can, to a binary and every stage before it.
    `tunable` is False if there is nothing to choose from in any kernel: such a backend runs in default mode, whatever is asked.
    `compilers_import` names modules that take long to import, read their environment only when they are used, and may be
    forked after it: those who compile ahead import them once.
    """

    name: ClassVar[str]
    api: ClassVar[int] = PLUGIN_API
    kernels_of: ClassVar[str] = ""
    clocks: ClassVar[Mapping[str, str]] = {}
    Options: ClassVar[type] = NoOptions
    install: ClassVar[str] = ""
    inspection: ClassVar[Mapping[str, Any]] = {}
    tunable: ClassVar[bool] = True
    compilers_import: ClassVar[tuple[str, ...]] = ()

    def __init__(self, options: Any = None) -> None:
        self.options = self.Options() if options is None else options

    @abstractmethod
    def probe(self, device: Device) -> str | None:
        """Return None if kernels can run on `device` here, else the reason, ending in the command that would mend it."""

    @abstractmethod
    def versions(self) -> Mapping[str, str]:
        """Return the versions of everything that can change this backend's code, e.g. `{"triton": "3.6.0"}`.

        Read from the distributions' metadata, without importing the DSL. A missing distribution is left out.
        """

    def interpreted(self, device: Device) -> bool:
        """Return True if kernels run on `device` in an interpreter only: they are verified there and never timed."""
        return False

    def environment(self, device: Device) -> Mapping[str, str]:
        """Return environment variables that must be set in the worker before the DSL is imported."""
        return {}

    @abstractmethod
    def compile(self, kernel: Kernel, inputs: Sequence[Any], config: Config) -> Compilation:
        """Compile `kernel` for `inputs` by calling it once, outside any timing.

        Raises CompileError, LaunchError or DeviceOutOfMemory in place of the DSL's own exceptions.
        """

    def compile_for(self, kernel: Kernel, inputs: Sequence[Any], config: Config, arch: str) -> Compilation:
        """Compile for a GPU of `arch` (e.g. "sm_90") that need not be here, without launching anything.

        `inputs` are on the CPU. Raises CompileError, or NotImplementedError if the DSL has no such compiler.
        """
        raise NotImplementedError(f"backend {self.name!r} cannot compile without its device")

    def warm_cache(self, kernel: Kernel, inputs: Sequence[Any], config: Config, arch: str) -> None:
        """Compile for `arch` into the DSL's own disk cache, where another process will find it, without a GPU.

        The default is `compile_for`, for a DSL whose compiler caches whatever it compiles.
        """
        self.compile_for(kernel, inputs, config, arch)

    def code_key(self, kernel: Kernel, inputs: Sequence[Any], config: Config, arch: str) -> Hashable | None:
        """Return what tells the code of `config` from that of other configurations, or None if it takes a compiler to tell.

        Of configurations with equal keys, which differ only in what `run` gives to a launch, one is compiled ahead.
        """
        return None

    def compile_many(
        self, kernel_module: str, inputs: Sequence[Any], configs: Sequence[Config], workers: int
    ) -> Iterator[Compilation | Exception]:
        """Compile the kernel of `kernel_module` for every one of `configs`, and yield the results in their order.

        The default compiles one after the other; a backend whose compiler takes seconds fills its disk cache from
        `workers` processes side by side. A configuration that fails yields its exception.
        """
        from importlib import import_module

        kernel = import_module(kernel_module).KERNEL
        for config in configs:
            try:
                yield self.compile(kernel, inputs, config)
            except Exception as error:  # a candidate's failure is its result, not the search's
                yield error

    def autotune(self, kernel: Kernel, inputs: Sequence[Any], configs: Sequence[Config]) -> NativeSearch:
        """Let the DSL's own tuner choose among `configs`, at least two; what `tune=native` asks for.

        The tuner compiles, times and chooses in its own way; its winner is verified afterwards like any other kernel.
        Raises NotTunable with the reason where the DSL has no tuner, or where its tuner cannot be given this kernel as
        it is; CompileError, LaunchError or DeviceOutOfMemory where the tuner gave up.
        """
        raise NotTunable(f"backend {self.name!r} has no tuner of its own; tune=shared searches the same space")

    def launch(self, kernel: Kernel, inputs: Sequence[Any], config: Config) -> Any:
        """Run a compiled kernel once on the current stream, and return its outputs."""
        return kernel.run(*inputs, **config)

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Hold whatever must be in place while this backend's kernels run; nothing by default."""
        yield
