"""The typed configuration of one `tilebench llm run`. No Hydra object exists past this point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from tilebench_core.config import DeviceSettings, Limits, RunConfig, TrackingSettings
from tilebench_core.errors import ConfigError
from tilebench_core.llm.protocol import Budget, PromptParts, Protocol
from tilebench_core.llm.retry import Retries
from tilebench_core.timing.settings import TimingSettings

__all__ = ["Isolation", "LlmConfig", "ModelSettings", "llm_config"]

_STRICT = {"extra": "forbid"}  # pydantic: an unknown key is an error


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """A model behind a provider. `deadline_s` limits one reply; `price` stands above the table."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    provider: str
    name: str
    base_url: str | None = None
    api_key_env: str | None = None
    max_output_tokens: int = 32768
    deadline_s: float = 1200.0
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    price: Mapping[str, Any] | None = None
    retries: Retries = field(default_factory=Retries)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sampling(self) -> dict[str, Any]:
        """What shapes a reply, beside the model itself."""
        names = ("max_output_tokens", "temperature", "top_p", "seed", "reasoning_effort")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """The walls around candidates. `insist` runs without any where none can be had; memory and scratch in GiB."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    mode: Literal["auto", "bubblewrap", "namespaces", "none"] = "auto"
    insist: bool = False
    memory_gb: float = 16.0
    processes: int = 256
    scratch_gb: float = 4.0


@dataclass(frozen=True, kw_only=True)
class LlmConfig:
    """Everything that one run of the LLM track was asked for."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    operators: Mapping[str, Mapping[str, Any]]
    backends: Mapping[str, Mapping[str, Any] | None]
    protocol: Protocol
    model: ModelSettings
    timing: TimingSettings = field(default_factory=TimingSettings)
    device: DeviceSettings = field(default_factory=DeviceSettings)
    tracking: TrackingSettings = field(default_factory=TrackingSettings)
    limits: Limits = field(default_factory=Limits)
    prompt: PromptParts = field(default_factory=PromptParts)
    budget: Budget = field(default_factory=Budget)
    campaign_budget: Budget = field(default_factory=Budget)
    isolation: Isolation = field(default_factory=Isolation)
    dtype: tuple[str, ...] | str | None = None
    condition: str | None = None
    campaign: str | None = None
    results_dir: str = "results"
    seed: int = 0
    baseline: str = "torch"
    times_from: str | None = None
    prices: str | None = None

    @property
    def dtypes(self) -> tuple[str, ...] | None:
        """The chosen dtypes, or None for those of the protocol."""
        return (self.dtype,) if isinstance(self.dtype, str) else self.dtype

    @property
    def condition_name(self) -> str:
        """The name of the experiment: the protocol's, where none was given."""
        return self.condition or self.protocol.name

    def harness_operators(self) -> RunConfig:
        """The configuration that plans which operators there are, and nothing else."""
        return RunConfig(operators=self.operators, backends={})

    def harness(
        self, operator: str, backends: Mapping[str, Any], dtypes: tuple[str, ...], cases: tuple[str, ...]
    ) -> RunConfig:
        """The configuration with which the harness runs one operator on `backends`."""
        return RunConfig(
            operators={operator: self.operators[operator]}, backends=backends, timing=self.timing, device=self.device,
            limits=self.limits, seed=self.seed, results_dir=self.results_dir, dtype=dtypes, cases=cases,
        )  # fmt: skip


def llm_config(composed: Mapping[str, Any]) -> LlmConfig:
    """Turn a composed mapping into an LlmConfig; raise ConfigError with the key, the value and what was expected."""
    from pydantic import TypeAdapter, ValidationError

    try:
        config: LlmConfig = TypeAdapter(LlmConfig).validate_python(dict(composed))
    except ValidationError as error:
        first = error.errors()[0]
        path = [str(part) for part in first["loc"] if not str(part).startswith(("tuple[", "literal[", "str", "int"))]
        raise ConfigError(f"{'.'.join(path)}={first['input']!r}: {first['msg']}") from error
    if not config.operators:
        raise ConfigError("no operator was chosen; add operator=softmax or operator=[softmax,layernorm]")
    if not config.backends:
        raise ConfigError("no backend was chosen; add backend=NAME or backend=[ONE,TWO]; `tilebench list` shows them")
    if config.isolation.mode == "none" and not config.isolation.insist:
        raise ConfigError(
            "isolation.mode=none runs code of a model without any walls; add isolation.insist=true if you must"
        )
    return config
