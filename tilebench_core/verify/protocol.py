"""The protocol of verification: run, compare, refill the inputs in place, poison, run again, compare again.

The second run catches what one comparison cannot: results kept by object, pointer or value, operands copied ahead of
time, outputs that are not written, and buffers that are kept between calls.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilebench_core.verify.compare import Comparison, as_outputs, compare_outputs, first_difference
from tilebench_core.verify.prepare import PreparedCase

if TYPE_CHECKING:
    import torch

__all__ = ["Verdict", "poison", "verify_launch"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`passed`, or the check that failed (`check`) and its message; the comparison holds the error statistics."""

    check: str | None
    message: str | None
    comparison: Comparison

    @property
    def passed(self) -> bool:
        """True if every check of both runs agreed."""
        return self.check is None


def _failed(comparison: Comparison, prefix: str) -> Verdict:
    return Verdict(check=comparison.check, message=f"{prefix}: {comparison.message}", comparison=comparison)


def verify_launch(prepared: PreparedCase, launch: Callable[[], Any]) -> Verdict:
    """Run `launch` twice on the live inputs of `prepared` and judge what it returns.

    `launch()` runs the kernel once on `prepared.inputs` and returns its outputs.
    """
    prepared.refill(0)
    first = launch()
    comparison = compare_outputs(first, prepared.expected[0], prepared.inputs, prepared.tolerance)
    if not comparison.passed:
        return _failed(comparison, "first run")
    kept = as_outputs(first)
    for output in kept:
        poison(output)
    prepared.refill(1)
    with poisoned_allocations():
        second = launch()
    comparison = compare_outputs(second, prepared.expected[1], prepared.inputs, prepared.tolerance)
    if not comparison.passed:
        stale = compare_outputs(second, prepared.expected[0], prepared.inputs, prepared.tolerance)
        if stale.passed:
            message = "the second run returned the result of the first, although the inputs hold new values"
            return Verdict(check="stale", message=message, comparison=comparison)
        return _failed(comparison, "second run, with new values in the same inputs and poisoned memory")
    written = first_difference(prepared.inputs, prepared.values[1])
    if written is not None:
        return Verdict(
            check="mutation", message=f"input {written} was written to; inputs are read-only", comparison=comparison
        )
    if {output.untyped_storage().data_ptr() for output in kept} & {
        output.untyped_storage().data_ptr() for output in as_outputs(second)
    }:
        message = "the second run returned memory that the first had returned and that is still in use; allocate outputs in every call"
        return Verdict(check="reuse", message=message, comparison=comparison)
    return Verdict(check=None, message=None, comparison=comparison)


def poison(output: torch.Tensor) -> None:
    """Overwrite an output with NaN, or with the largest value of a type that has no NaN."""
    import torch

    if output.dtype.is_floating_point:
        output.fill_(float("nan"))
    elif output.dtype != torch.bool:
        output.fill_(torch.iinfo(output.dtype).max)


@contextlib.contextmanager
def poisoned_allocations() -> Iterator[None]:
    """Let PyTorch hand out uninitialised memory filled with NaN (or the dtype's extreme) inside the context."""
    import torch

    settings: Any = torch.utils.deterministic
    before, filled = torch.get_deterministic_debug_mode(), settings.fill_uninitialized_memory
    # The debug mode "warn" switches the filling on; use_deterministic_algorithms would load Inductor, for seconds.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_deterministic_debug_mode("warn")
        settings.fill_uninitialized_memory = True
        try:
            yield
        finally:
            settings.fill_uninitialized_memory = filled
            torch.set_deterministic_debug_mode(before)
