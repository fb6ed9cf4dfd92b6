"""Negative controls: wrong results that an operator's tolerance must reject."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from tilebench_core.case import Case
from tilebench_core.definition import Definition
from tilebench_core.verify.compare import as_outputs

__all__ = ["CONTROLS", "negative_controls"]

CONTROLS = ("zeros", "tail", "swapped", "noise", "lower_precision")


def negative_controls(
    case: Case, definition: Definition, reference: Callable[..., Any], inputs: tuple[Any, ...], precision: str
) -> Iterator[tuple[str, tuple[torch.Tensor, ...]]]:
    """Yield (name, outputs) for every control that applies to the operator.

    `zeros`: all zero. `tail`: the last 16 elements (or half of fewer) dropped. `swapped`: the two elements that differ
    most exchanged. `noise`: random values of the reference's mean and spread. `lower_precision`: the result from inputs
    rounded to the next lower precision class.
    """
    expected = as_outputs(reference(*inputs))
    builders: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "zeros": torch.zeros_like,
        "tail": _without_tail,
        "swapped": _swapped,
        "noise": _noise,
    }
    for name, build in builders.items():
        if name not in definition.inapplicable_controls:
            yield name, tuple(build(output) for output in expected)
    rounded = tuple(_rounded(value, precision) for value in inputs)
    if "lower_precision" not in definition.inapplicable_controls and any(
        isinstance(value, torch.Tensor) and value is not original
        for value, original in zip(rounded, inputs, strict=True)
    ):
        yield "lower_precision", as_outputs(reference(*rounded))


def _without_tail(output: torch.Tensor) -> torch.Tensor:
    wrong = output.clone().flatten()
    wrong[-max(1, min(16, wrong.numel() // 2)) :] = 0
    return wrong.view(output.shape)


def _swapped(output: torch.Tensor) -> torch.Tensor:
    wrong = output.clone().flatten()
    low, high = int(wrong.float().argmin()), int(wrong.float().argmax())
    wrong[[low, high]] = wrong[[high, low]]
    return wrong.view(output.shape)


def _noise(output: torch.Tensor) -> torch.Tensor:
    values = output.float()
    spread = values.std(correction=0) if values.numel() > 1 else values.abs().mean()
    generator = torch.Generator(output.device).manual_seed(7)
    noise = torch.randn(output.shape, generator=generator, device=output.device) * spread + values.mean()
    return (noise if output.is_floating_point() else noise.round()).to(output.dtype)


def _rounded(value: Any, precision: str) -> Any:
    """Round a floating tensor to the next lower class: fp32 and tf32 to bf16, fp16 and bf16 to fp8; others unchanged."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    if precision in ("fp32", "tf32"):
        return value.to(torch.bfloat16).to(value.dtype)
    if precision in ("fp16", "bf16"):
        return value.float().clamp(-448, 448).to(torch.float8_e4m3fn).to(value.dtype)
    return value
