"""What the official clients have in common: opening one, their exceptions as ours, Retry-After, the key from the environment."""

from __future__ import annotations

import email.utils
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType
from typing import Any, ClassVar

from tilebench_core.errors import RequestError
from tilebench_core.llm.provider import Provider, ProviderError, Reply, Request

__all__ = ["ClientProvider", "retry_after_s"]

_RETRIED = {408, 409, 425, 429, 500, 502, 503, 504, 529}
"""Statuses after which the same request may succeed. 529 is what Anthropic's API answers when it is overloaded."""


def api_key(variable: str | None, needed: bool) -> str:
    """The key in the environment variable `variable`; a placeholder where a local server needs none."""
    if variable and os.environ.get(variable):
        return os.environ[variable]
    if needed:
        raise RequestError(f"no API key: set the environment variable {variable or '(model.api_key_env)'}")
    return "none"


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """What `Retry-After` asks for, in seconds from now: a number, a date, or milliseconds in `retry-after-ms`."""
    try:
        if headers.get("retry-after-ms"):
            return max(0.0, float(headers["retry-after-ms"]) / 1e3)
        if headers.get("retry-after"):
            return max(0.0, float(headers["retry-after"]))
    except ValueError:
        date = email.utils.parsedate_tz(headers.get("retry-after", ""))
        return None if date is None else max(0.0, email.utils.mktime_tz(date) - time.time())
    return None


@contextmanager
def translated(client: ModuleType, started: list[bool]) -> Iterator[None]:
    """Turn the exceptions of an official client into ProviderError. `started` is non-empty once tokens have come.

    Both clients are made by the same generator and name their exceptions alike.
    """
    module: Any = client
    try:
        yield
    except ProviderError:
        raise
    except module.APIStatusError as error:
        status = int(error.status_code)
        wait_s = retry_after_s(error.response.headers)
        message = f"HTTP {status}: {_message(error)}"
        raise ProviderError(message, retry=status in _RETRIED, after_s=wait_s, may_cost=bool(started)) from error
    except module.APITimeoutError as error:
        raise ProviderError("the API did not answer in time", retry=True, may_cost=True) from error
    except module.APIConnectionError as error:
        reason = str(error.__cause__ or error)
        raise ProviderError(f"no connection to the API: {reason}", retry=True, may_cost=bool(started)) from error
    except module.APIError as error:
        raise ProviderError(f"the API reports: {_message(error)}", retry=True, may_cost=bool(started)) from error
    except Exception as error:  # a stream that breaks off raises the transport's own errors, which differ by version
        if type(error).__module__.split(".")[0] not in ("httpx", "httpx2", "httpcore", "httpcore2", "json", "h11"):
            raise
        raise ProviderError(f"the reply broke off: {error}", retry=True, may_cost=True) from error


class ClientProvider(Provider):
    """A provider that streams one reply through an official client, the class `client` of the package `package`.

    The client's own retries are off, since every attempt is recorded.
    """

    package: ClassVar[str]
    client: ClassVar[str]

    @property
    def needs_key(self) -> bool:
        """Whether a request without a key is refused before it is sent."""
        return True

    @abstractmethod
    def module(self) -> ModuleType:
        """The imported package: each has one module here that imports it."""

    @abstractmethod
    def stream(self, client: Any, request: Request, progress: Callable[[int], None], started: list[bool]) -> Reply:
        """Send `request` by the open `client`; append to `started` with everything that arrives."""

    def probe(self) -> str | None:
        """See `Provider.probe`."""
        if find_spec(self.package) is None:
            return f"the package {self.package} is not installed: pip install 'tilebench[{self.package}]'"
        api_key(self.settings.api_key_env, self.needs_key)
        return None

    def identity(self) -> Mapping[str, Any]:
        """See `Provider.identity`."""
        return {"base_url": self.settings.base_url}

    def send(self, request: Request, progress: Callable[[int], None]) -> Reply:
        """See `Provider.send`."""
        module, started = self.module(), list[bool]()
        with translated(module, started):
            client = getattr(module, self.client)(
                api_key=api_key(self.settings.api_key_env, self.needs_key),
                base_url=self.settings.base_url,
                timeout=request.deadline_s,
                max_retries=0,
            )
            with client:
                return self.stream(client, request, progress, started)


def _message(error: Any) -> str:
    body = getattr(error, "body", None)
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        if isinstance(inner, Mapping) and inner.get("message"):
            return str(inner["message"])[:400]
    return str(getattr(error, "message", error))[:400]
