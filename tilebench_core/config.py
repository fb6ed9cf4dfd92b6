"""The typed configuration of a run. No Hydra object exists past this point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from tilebench_core.errors import ConfigError
from tilebench_core.timing.settings import TimingSettings

__all__ = ["DeviceSettings", "Limits", "RunConfig", "TrackingSettings", "TuneSettings", "WorkerSettings", "run_config"]

_STRICT = {"extra": "forbid"}  # pydantic: an unknown key is an error


@dataclass(frozen=True, kw_only=True)
class DeviceSettings:
    """`name` is auto, cpu or cuda:N; `compile_for` the architecture that kernels are compiled for where none is there."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    name: str = "auto"
    compile_for: str = "sm_90"
    ceilings: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class TuneSettings:
    """How tuned configurations are found; see docs/tuning.md."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    kind: Literal["off", "shared", "native", "replay"] = "off"
    share: Literal["case", "dtype", "operator"] = "case"
    share_within: float = 4.0
    workers: int = 0
    samples: int = 10
    finalists: int = 4
    drop_slower_than: float = 1.3
    from_campaign: str | None = None


@dataclass(frozen=True, kw_only=True)
class TrackingSettings:
    """Where MLflow's view of the records goes."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    kind: Literal["sqlite", "server", "none"] = "sqlite"
    uri: str | None = None
    experiment: str = "tilebench"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds until a step counts as hung, and the address space of a worker in GB."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    prepare_s: float = 120.0
    compile_s: float = 300.0
    run_s: float = 60.0
    time_s: float = 300.0
    memory_gb: float | None = None


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """`recycle_after` cases a fresh worker is started; 0 keeps one as long as it is healthy."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    recycle_after: int = 0


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that one `tilebench run` was asked for. `operators` and `backends` hold the composed nodes by name."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    operators: Mapping[str, Mapping[str, Any]]
    backends: Mapping[str, Mapping[str, Any] | None]
    timing: TimingSettings = field(default_factory=TimingSettings)
    tune: TuneSettings = field(default_factory=TuneSettings)
    device: DeviceSettings = field(default_factory=DeviceSettings)
    tracking: TrackingSettings = field(default_factory=TrackingSettings)
    limits: Limits = field(default_factory=Limits)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    dtype: tuple[str, ...] | str | None = None
    cases: tuple[int | str, ...] | int | str = ("grid",)
    mode: tuple[Literal["default", "tuned"], ...] | Literal["default", "tuned"] = ("default",)
    campaign: str | None = None
    results_dir: str = "results"
    rerun: Literal["none", "failed", "all"] = "none"
    seed: int = 0
    figures: bool = True
    precompile: bool = True
    noise_floor: bool = True

    @property
    def dtypes(self) -> tuple[str, ...] | None:
        """The chosen dtypes, or None for all of each operator."""
        return (self.dtype,) if isinstance(self.dtype, str) else self.dtype

    @property
    def chosen_cases(self) -> tuple[int | str, ...]:
        """The chosen kinds and indices of cases."""
        return self.cases if isinstance(self.cases, tuple) else (self.cases,)

    @property
    def modes(self) -> tuple[str, ...]:
        """The chosen modes."""
        return (self.mode,) if isinstance(self.mode, str) else self.mode


def run_config(composed: Mapping[str, Any]) -> RunConfig:
    """Turn a composed mapping into a RunConfig; raise ConfigError with the key, the value and what was expected."""
    from pydantic import TypeAdapter, ValidationError

    try:
        config: RunConfig = TypeAdapter(RunConfig).validate_python(dict(composed))
    except ValidationError as error:
        first = error.errors()[0]
        path = [str(part) for part in first["loc"] if not str(part).startswith(("tuple[", "literal[", "str", "int"))]
        raise ConfigError(f"{'.'.join(path)}={first['input']!r}: {first['msg']}") from error
    if config.tune.kind == "off" and "tuned" in config.modes:
        raise ConfigError("mode=tuned needs a way to tune; add tune=shared, tune=native or tune=replay")
    if config.tune.share_within < 1:
        raise ConfigError(f"tune.share_within={config.tune.share_within}: expected a factor of at least 1, such as 4")
    if config.tune.kind == "replay" and not config.tune.from_campaign:
        raise ConfigError("tune=replay needs tune.from_campaign=CAMPAIGN, the campaign or file whose winners are used")
    return config
