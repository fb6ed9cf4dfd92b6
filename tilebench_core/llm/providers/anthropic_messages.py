"""Anthropic's Messages API, through the official client."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, ClassVar

from tilebench_core.llm.provider import ProviderError, Reply, Request
from tilebench_core.llm.providers.clients import ClientProvider
from tilebench_core.llm.usage import Usage

__all__ = ["AnthropicMessages", "AnthropicOptions"]

_FINISH = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "refusal": "refusal"}


@dataclass(frozen=True, kw_only=True)
class AnthropicOptions:
    """`thinking_tokens` turns extended thinking on with that budget; `extra_body` is added to the request as it is."""

    thinking_tokens: int | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)


class AnthropicMessages(ClientProvider):
    """One streamed message per request."""

    name: ClassVar[str] = "anthropic"
    package: ClassVar[str] = "anthropic"
    client: ClassVar[str] = "Anthropic"
    Options: ClassVar[type] = AnthropicOptions

    def module(self) -> ModuleType:
        """See `ClientProvider.module`."""
        import anthropic

        found: ModuleType = anthropic
        return found

    def stream(self, client: Any, request: Request, progress: Callable[[int], None], started: list[bool]) -> Reply:
        """See `ClientProvider.stream`."""
        sampling: dict[str, Any] = {
            name: value for name in ("temperature", "top_p") if (value := getattr(request, name)) is not None
        }
        if self.options.thinking_tokens:
            sampling["thinking"] = {"type": "enabled", "budget_tokens": self.options.thinking_tokens}
        if request.reasoning_effort is not None:
            sampling["output_config"] = {"effort": request.reasoning_effort}
        begun, length, complete = time.monotonic(), 0, False
        with client.messages.stream(
            model=request.model,
            max_tokens=request.max_output_tokens,
            messages=[{"role": "user", "content": request.prompt}],
            # In the body, and not as keywords: which of them the client knows has changed with its versions.
            extra_body={**sampling, **self.options.extra_body} or None,
        ) as stream:
            for event in stream:
                started.append(True)
                if time.monotonic() - begun > request.deadline_s:
                    message = f"no end of the reply within {request.deadline_s:.0f} s"
                    raise ProviderError(message, retry=True, may_cost=True)
                complete |= event.type == "message_stop"
                if event.type == "text":
                    length += len(event.text)
                    progress(length)
            if not complete:
                raise ProviderError("the reply broke off before its end", retry=True, may_cost=True)
            message = stream.get_final_message()
        raw = message.usage.model_dump()
        return Reply(
            text="".join(block.text for block in message.content if block.type == "text"),
            finish=_FINISH.get(message.stop_reason, "other"), usage=usage_of(raw), model=message.model,
            response_id=message.id, seconds=time.monotonic() - begun, raw_usage=raw,
        )  # fmt: skip


def usage_of(raw: Mapping[str, Any]) -> Usage:
    """Our counts from Anthropic's: its input tokens leave out those that were read from or written to the cache."""
    details = raw.get("output_tokens_details") or {}
    return Usage(
        input_tokens=raw.get("input_tokens"),
        cached_input_tokens=raw.get("cache_read_input_tokens"),
        cache_write_tokens=raw.get("cache_creation_input_tokens"),
        output_tokens=raw.get("output_tokens"),
        reasoning_tokens=details.get("thinking_tokens", details.get("reasoning_tokens")),
    )
