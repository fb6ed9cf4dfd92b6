"""A protocol: what a trajectory is, how long it goes on, what the model is told, and what counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tilebench_core.errors import ConfigError

__all__ = ["Budget", "PromptParts", "Protocol"]


@dataclass(frozen=True, kw_only=True)
class PromptParts:
    """Which parts a prompt has: what an ablation leaves out."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    guide: bool = True
    api_reference: bool = True
    description: bool = True
    pytorch: bool = True


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits that a request must not be able to exceed; None sets none. Money in US dollars, `wall_s` in seconds."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    tokens: int | None = None
    money_usd: float | None = None
    rounds: int | None = None
    wall_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """The rules of a trajectory.

    - `unit`: "joint" asks for all backends in one reply, "single" for one backend per request.
    - `freeze_at`: a backend that is clean and at this share of the roofline in every case is not asked for again.
    - `case`: "largest" judges by one case per dtype, "grid" by all cases of one dtype.
    - `feedback` and `history` choose the templates that later rounds begin with.
    - `parameters`: the prompt shows the operator's "config" file, or the "domain" of its parameters only.
    - `metric`: "speedup_per_mtoken" or "efficiency_over_budget".
    - `accept`: the verdicts of the compliance check with which a candidate may count.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    name: str
    unit: Literal["joint", "single"]
    rounds: int
    case: Literal["largest", "grid"]
    freeze_at: float | None = None
    feedback: Literal["scores", "outcome"] = "outcome"
    history: Literal["trajectory", "valid"] = "valid"
    parameters: Literal["config", "domain"] = "domain"
    metric: Literal["speedup_per_mtoken", "efficiency_over_budget"] = "efficiency_over_budget"
    accept: tuple[Literal["clear", "noted", "needs review"], ...] = ("clear", "noted")
    smoke_first: bool = False

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ConfigError(f"protocol.rounds={self.rounds}: expected at least 1")
        if self.freeze_at is not None and not self.freeze_at > 0:
            raise ConfigError(f"protocol.freeze_at={self.freeze_at}: expected a share of the roofline, such as 0.8")
