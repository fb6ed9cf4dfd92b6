"""The contract of a provider: an API that a prompt is sent to. Plugins of the group `tilebench.llm_providers`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tilebench_core.backend import PLUGIN_API, NoOptions
from tilebench_core.errors import TilebenchError
from tilebench_core.llm.usage import Usage

__all__ = ["Provider", "ProviderError", "ProviderSettings", "Reply", "Request"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """One single-turn request. `key` names its place in the trajectory for providers that answer from a file.

    `deadline_s` is how long the whole reply may take. Sampling values that are None are left to the API.
    """

    model: str
    prompt: str
    key: Mapping[str, Any]
    max_output_tokens: int
    deadline_s: float
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    reasoning_effort: str | None = None


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What came back. `finish` is stop, length, refusal or other; `seconds` is the time from sending to the last token."""

    text: str
    finish: str
    usage: Usage
    model: str | None = None
    response_id: str | None = None
    seconds: float = 0.0
    raw_usage: Mapping[str, Any] = field(default_factory=dict)


class ProviderError(TilebenchError):
    """A request failed. `retry` says whether the same request may succeed later, `after_s` what the API asked to wait.

    `may_cost` is True where the API may have produced, and charged for, tokens that did not arrive.
    """

    def __init__(self, message: str, *, retry: bool, after_s: float | None = None, may_cost: bool = False) -> None:
        super().__init__(message)
        self.retry = retry
        self.after_s = after_s
        self.may_cost = may_cost


@dataclass(frozen=True, kw_only=True)
class ProviderSettings:
    """What every provider is opened with: where the API is, the name of the variable that holds its key, its options."""

    base_url: str | None = None
    api_key_env: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


class Provider(ABC):
    """An API. `Options` is a dataclass whose fields may stand under `model.options`; importing the module costs nothing."""

    name: ClassVar[str]
    api: ClassVar[int] = PLUGIN_API
    Options: ClassVar[type] = NoOptions

    def __init__(self, settings: ProviderSettings) -> None:
        self.settings = settings
        self.options = self.Options(**settings.options)

    @abstractmethod
    def send(self, request: Request, progress: Callable[[int], None]) -> Reply:
        """Send `request` once, without retries, and return the whole reply.

        `progress(characters)` may be called while the reply streams in. Raises ProviderError.
        """

    def probe(self) -> str | None:
        """Return None if requests can be sent from here, else the reason and what would mend it."""
        return None

    def identity(self) -> Mapping[str, Any]:
        """What enters the fingerprint of a trajectory, beside the model's settings. Never a secret."""
        return {}
