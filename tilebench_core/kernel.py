"""The contract of a kernel: what `impl_<backend>.py` exports as `KERNEL`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilebench_core.case import Case
from tilebench_core.device import Device

__all__ = ["Config", "Kernel"]

Config = Mapping[str, Any]
"""A configuration: a flat mapping of JSON-able values, passed to `run` as keyword arguments."""


def _empty(case: Case) -> Config:
    return {}


def _no_space(case: Case) -> list[Config]:
    return []


def _supported(case: Case, device: Device) -> str | None:
    return None


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One operator written for one backend.

    - `run(*inputs, **config)` computes the operator and returns a tensor or a tuple of tensors, freshly allocated.
      All of it is timed. It works on the stream that is current when it is called, so that it can be captured in a
      CUDA graph, and keeps nothing between calls but compiled code.
    - `default(case)` is one hand-picked configuration.
    - `space(case)` is the list that tuning searches; at most about 40 entries.
    - `unsupported(case, device)` is None, or the reason why this kernel can't do the case.
    """

    run: Callable[..., Any]
    default: Callable[[Case], Config] = _empty
    space: Callable[[Case], list[Config]] = _no_space
    unsupported: Callable[[Case, Device], str | None] = _supported
