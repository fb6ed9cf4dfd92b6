"""Sending a request until a reply is there: waits as the API asks, and tells about every attempt."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilebench_core.llm.provider import Provider, ProviderError, Reply, Request

__all__ = ["Retries", "send_patiently"]


@dataclass(frozen=True, kw_only=True)
class Retries:
    """How often a request is repeated, and how long is waited in between, in seconds.

    Retry-After stands above the backoff. An API that asks for more than `longest_wait_s` is not waited for: the run
    ends, and the same command goes on later.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 (pydantic reads it; it is never changed)
    attempts: int = 6
    first_wait_s: float = 2.0
    longest_wait_s: float = 120.0


def send_patiently(
    provider: Provider,
    request: Request,
    retries: Retries,
    attempt_failed: Callable[[dict[str, Any]], None],
    announce: Callable[[], None],
    stopped: Callable[[], bool],
    sleep: Callable[[float], None] = time.sleep,
    progress: Callable[[int], None] = lambda characters: None,
) -> Reply:
    """Send `request`; raise ProviderError when it cannot succeed, or the attempts are used up, or `stopped()`.

    `attempt_failed` is told about each failed attempt before anything else happens, and `announce` is called before each
    repetition goes out (the first request was announced by the caller), so that both are on disk.
    """
    for attempt in range(1, retries.attempts + 1):
        if attempt > 1:
            announce()
        try:
            return provider.send(request, progress)
        except ProviderError as error:
            wait_s = error.after_s
            if wait_s is None:
                wait_s = min(retries.longest_wait_s, retries.first_wait_s * 2 ** (attempt - 1)) * random.uniform(
                    0.75, 1
                )
            attempt_failed({
                "attempt": attempt, "reason": str(error), "retry": error.retry, "after_s": error.after_s,
                "may_cost": error.may_cost,
            })  # fmt: skip
            if not error.retry or attempt == retries.attempts:
                raise
            if wait_s > retries.longest_wait_s:
                raise ProviderError(
                    f"{error}; the API asks to wait {wait_s:.0f} s, more than model.retries.longest_wait_s="
                    f"{retries.longest_wait_s:.0f}; the same command goes on later",
                    retry=True,
                ) from error
            _sleep_unless(stopped, wait_s, sleep)
            if stopped():
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def _sleep_unless(stopped: Callable[[], bool], seconds: float, sleep: Callable[[float], None]) -> None:
    """Sleep in short pieces, so that a request to stop is heard."""
    left = seconds
    while left > 0 and not stopped():
        sleep(min(0.5, left))
        left -= 0.5
