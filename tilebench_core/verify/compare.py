"""One set of outputs against its reference: each property is a check of its own, with expected and actual."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilebench_core.dtypes import name_of
from tilebench_core.tolerance import Tolerance

if TYPE_CHECKING:
    import torch

__all__ = ["Comparison", "as_outputs", "compare_outputs", "first_difference"]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The result of comparing outputs: `check` and `message` are None if everything agrees.

    Errors are the largest over all outputs; `worst` says where the largest excess over the tolerance is, and
    `failing_share` which share of that output's elements exceed it.
    """

    check: str | None = None
    message: str | None = None
    max_abs_err: float | None = None
    max_rel_err: float | None = None
    worst: str | None = None
    failing_share: float = 0.0

    @property
    def passed(self) -> bool:
        """True if every check agreed."""
        return self.check is None


def as_outputs(result: Any) -> tuple[Any, ...]:
    """Return what `run` returned as a tuple of outputs."""
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def compare_outputs(
    actual: Any,
    expected: Sequence[torch.Tensor],
    inputs: Sequence[Any],
    tolerance: Callable[[str], Tolerance],
) -> Comparison:
    """Compare what a kernel returned with `expected`; `tolerance` maps an output's dtype name to its tolerance."""
    outputs = as_outputs(actual)
    problem = _structure(outputs, expected) or _aliasing(outputs, inputs)
    if problem is not None:
        return Comparison(check=problem[0], message=problem[1])
    results = [
        _values(output, reference, tolerance(name_of(reference.dtype)), _label(index, len(expected)))
        for index, (output, reference) in enumerate(zip(outputs, expected, strict=True))
    ]
    failed = next((result for result in results if not result.passed), None)
    chosen = failed or results[0]
    return Comparison(
        check=chosen.check,
        message=chosen.message,
        max_abs_err=max((r.max_abs_err for r in results if r.max_abs_err is not None), default=None),
        max_rel_err=max((r.max_rel_err for r in results if r.max_rel_err is not None), default=None),
        worst=chosen.worst,
        failing_share=chosen.failing_share,
    )


def _label(index: int, count: int) -> str:
    return "output" if count == 1 else f"output {index}"


def _structure(outputs: Sequence[Any], expected: Sequence[torch.Tensor]) -> tuple[str, str] | None:
    import torch

    if len(outputs) != len(expected):
        return "count", f"returned {len(outputs)} outputs, expected {len(expected)}"
    for index, (output, reference) in enumerate(zip(outputs, expected, strict=True)):
        label = _label(index, len(expected))
        if not isinstance(output, torch.Tensor):
            return "type", f"{label} is a {type(output).__name__}, expected a tensor"
        for check, got, wanted in (
            ("shape", list(output.shape), list(reference.shape)),
            ("dtype", name_of(output.dtype), name_of(reference.dtype)),
            ("device", str(output.device), str(reference.device)),
        ):
            if got != wanted:
                return check, f"{label} has {check} {got}, expected {wanted}"
        if not output.is_contiguous():
            return "contiguity", f"{label} has strides {list(output.stride())}, expected a contiguous tensor"
    return None


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _aliasing(outputs: Sequence[torch.Tensor], inputs: Sequence[Any]) -> tuple[str, str] | None:
    import torch

    for index, output in enumerate(outputs):
        for position, value in enumerate(inputs):
            if isinstance(value, torch.Tensor) and value.numel() and _storage(value) == _storage(output):
                return (
                    "aliasing",
                    f"{_label(index, len(outputs))} shares its memory with input {position}, expected its own",
                )
    return None


def _values(output: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance, label: str) -> Comparison:
    if expected.numel() == 0:
        return Comparison(max_abs_err=0.0, max_rel_err=0.0)
    if not expected.dtype.is_floating_point:
        return _exact(output, expected, label)
    return _floating(output, expected, tolerance, label)


def _exact(output: torch.Tensor, expected: torch.Tensor, label: str) -> Comparison:
    import torch

    wrong = output != expected
    # Large integers that differ may be one double: each wrong element counts at least one, so that it can be found.
    error = torch.maximum((output.double() - expected.double()).abs(), wrong.double())
    count, largest, where = (float(v) for v in _gather(wrong.sum(), error.max(), error.argmax()))
    if count == 0:
        return Comparison(max_abs_err=0.0, max_rel_err=0.0)
    share = count / expected.numel()
    place = _place(int(where), expected)
    return Comparison(
        check="values",
        message=f"{label}{place} is {output.flatten()[int(where)].item()}, expected {expected.flatten()[int(where)].item()};"
        f" {share:.2%} of the elements differ",
        max_abs_err=largest,
        worst=f"{label}{place}",
        failing_share=share,
    )


def _gather(*scalars: torch.Tensor) -> list[float]:
    """Bring several scalars from the device in one transfer."""
    import torch

    return list(torch.stack([scalar.double() for scalar in scalars]).tolist())


def _floating(output: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance, label: str) -> Comparison:
    import torch

    got, want = output.float(), expected.float()
    error = (got - want).abs()
    magnitude = want.abs()
    if tolerance.ulp:
        bound = _ulp(output, expected) * tolerance.ulp
    else:
        scale = want.square().mean(dim=-1, keepdim=True).sqrt() if tolerance.scale == "row_rms" else 1.0
        bound = magnitude * tolerance.rtol + torch.as_tensor(tolerance.atol * scale)
        if not tolerance.is_exact:
            # Two roundings of one value may differ by the smallest subnormal, however small the tolerance.
            bound = bound.clamp_min(torch.finfo(expected.dtype).smallest_normal * torch.finfo(expected.dtype).eps)
    same = got == want  # also where both are the same infinity, for which the error is NaN
    excess = torch.where(same, -math.inf, torch.nan_to_num(error - bound, nan=math.inf))
    unequal_finiteness = (got.isfinite() != want.isfinite()) | (got.isnan() != want.isnan())
    finite = torch.where(unequal_finiteness | same, 0.0, error)
    relative = torch.where(magnitude > 0, finite / magnitude, 0.0)
    failing, non_finite, absolute, rel, where = _gather(
        (excess > 0).sum(), unequal_finiteness.sum(), finite.max(), relative.max(), excess.argmax()
    )
    count, index = expected.numel(), int(where)
    if failing == 0:
        return Comparison(max_abs_err=absolute, max_rel_err=rel, worst=f"{label}{_place(index, expected)}")
    place = _place(index, expected)
    values = f"{label}{place} is {got.flatten()[index].item():.9g}, expected {want.flatten()[index].item():.9g}"
    check = "non-finite" if non_finite else "values"
    detail = (
        f"{non_finite / count:.2%} of the elements are finite in one only" if non_finite else f"allowed {tolerance}"
    )
    return Comparison(
        check=check,
        message=f"{values}; {detail}; {failing / count:.2%} of the elements fail",
        max_abs_err=absolute,
        max_rel_err=rel,
        worst=f"{label}{place}",
        failing_share=failing / count,
    )


def _ulp(output: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """The unit in the last place at the larger of the two magnitudes, [..., same shape], fp32."""
    import torch

    info = torch.finfo(expected.dtype)
    larger = torch.maximum(output.float().abs(), expected.float().abs()).clamp_min(info.smallest_normal)
    return torch.exp2(torch.floor(torch.log2(larger))) * info.eps


def _place(flat_index: int, tensor: torch.Tensor) -> str:
    place = []
    for extent in reversed(tensor.shape):
        place.append(flat_index % extent)
        flat_index //= extent
    return str(list(reversed(place)))


def first_difference(tensors: Sequence[Any], originals: Sequence[Any]) -> int | None:
    """Return the position of the first tensor that is not bitwise equal to its original, or None."""
    import torch

    pairs = [
        (position, value, original)
        for position, (value, original) in enumerate(zip(tensors, originals, strict=True))
        if isinstance(value, torch.Tensor)
    ]
    for position, value, original in pairs:
        if not torch.equal(_bits(value), _bits(original)):
            return position
    return None


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return tensor.contiguous().view(torch.uint8) if tensor.ndim else tensor
