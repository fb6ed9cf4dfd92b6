"""Endpoints that speak OpenAI's chat completions, through the official client: OpenAI, vLLM, Ollama and most vendors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, ClassVar

from tilebench_core.llm.provider import ProviderError, Reply, Request
from tilebench_core.llm.providers.clients import ClientProvider
from tilebench_core.llm.usage import Usage

__all__ = ["OpenAICompatible", "OpenAIOptions"]

_FINISH = {"stop": "stop", "length": "length", "content_filter": "refusal"}


@dataclass(frozen=True, kw_only=True)
class OpenAIOptions:
    """`output_limit` names the parameter that limits the reply; `usage_chunk` asks for the usage at the stream's end.

    `needs_key` is False for local servers. `extra_body` is added to the request as it is.
    """

    output_limit: str = "max_completion_tokens"
    usage_chunk: bool = True
    needs_key: bool = True
    extra_body: Mapping[str, Any] = field(default_factory=dict)


class OpenAICompatible(ClientProvider):
    """One streamed chat completion per request."""

    name: ClassVar[str] = "openai"
    package: ClassVar[str] = "openai"
    client: ClassVar[str] = "OpenAI"
    Options: ClassVar[type] = OpenAIOptions

    @property
    def needs_key(self) -> bool:
        """See `ClientProvider.needs_key`."""
        return bool(self.options.needs_key)

    def module(self) -> ModuleType:
        """See `ClientProvider.module`."""
        import openai

        found: ModuleType = openai
        return found

    def stream(self, client: Any, request: Request, progress: Callable[[int], None], started: list[bool]) -> Reply:
        """See `ClientProvider.stream`."""
        sampling = {
            name: value
            for name in ("temperature", "top_p", "seed", "reasoning_effort")
            if (value := getattr(request, name)) is not None
        }
        if self.options.usage_chunk:
            sampling["stream_options"] = {"include_usage": True}
        begun = time.monotonic()
        chunks = client.chat.completions.create(
            model=request.model,
            messages=[{"role": "user", "content": request.prompt}],
            stream=True,
            extra_body=dict(self.options.extra_body) or None,
            **{self.options.output_limit: request.max_output_tokens},
            **sampling,
        )
        text: list[str] = []
        finish, usage, model, response_id = None, None, None, None
        for chunk in chunks:
            started.append(True)
            if time.monotonic() - begun > request.deadline_s:
                chunks.close()
                raise ProviderError(f"no end of the reply within {request.deadline_s:.0f} s", retry=True, may_cost=True)
            model, response_id = chunk.model or model, chunk.id or response_id
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text.append(choice.delta.content or "")
                finish = choice.finish_reason or finish
            progress(sum(map(len, text)))
        if finish is None:
            raise ProviderError("the reply broke off before its end", retry=True, may_cost=True)
        raw = usage.model_dump() if usage is not None else {}
        return Reply(
            text="".join(text), finish=_FINISH.get(finish, "other"), usage=usage_of(raw), model=model,
            response_id=response_id, seconds=time.monotonic() - begun, raw_usage=raw,
        )  # fmt: skip


def usage_of(raw: Mapping[str, Any]) -> Usage:
    """Our counts from OpenAI's: its prompt tokens include the cached ones."""
    prompt, details = raw.get("prompt_tokens"), raw.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens")
    return Usage(
        input_tokens=None if prompt is None else prompt - (cached or 0),
        cached_input_tokens=cached,
        output_tokens=raw.get("completion_tokens"),
        reasoning_tokens=(raw.get("completion_tokens_details") or {}).get("reasoning_tokens"),
    )
