"""A case made ready: live inputs, two sets of values to refill them with, and the reference for each."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilebench_core.case import Case
from tilebench_core.definition import Definition, Draw
from tilebench_core.tolerance import Tolerance
from tilebench_core.verify.compare import as_outputs

if TYPE_CHECKING:
    import torch

__all__ = ["PreparedCase", "precision_state", "prepare_case"]


@dataclass(frozen=True)
class PreparedCase:
    """Inputs at fixed addresses and two sets of values for them, each with its reference outputs."""

    case: Case
    inputs: tuple[Any, ...]
    values: tuple[tuple[Any, ...], tuple[Any, ...]]
    expected: tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]
    tolerance: Callable[[str], Tolerance]

    def refill(self, which: int) -> None:
        """Write the values of set `which` (0 or 1) into the live inputs, in place."""
        for live, new in zip(self.inputs, self.values[which], strict=True):
            if hasattr(live, "copy_"):
                live.copy_(new)


def prepare_case(
    case: Case,
    definition: Definition,
    reference: Callable[..., Any],
    tolerance: Callable[[str], Tolerance],
    device: str,
    seed: int,
) -> PreparedCase:
    """Draw the inputs of `case` twice and compute the reference of each, from copies that no kernel ever sees.

    Raises ValueError if a reference is not finite where it is floating, since our inputs never ask for that.
    """
    import torch

    base = int.from_bytes(
        hashlib.sha256(f"{case.operator}/{case.dtype}/{case.label}/{seed}".encode()).digest()[:4], "big"
    )
    values = tuple(definition.inputs(case, Draw(device, base + which)) for which in (0, 1))
    expected = []
    for drawn in values:
        outputs = as_outputs(reference(*_copies(drawn)))
        for index, output in enumerate(outputs):
            if output.is_floating_point() and not bool(torch.isfinite(output.float()).all()):
                raise ValueError(f"output {index} of the reference is not finite")
        expected.append(outputs)
    return PreparedCase(case, _copies(values[0]), (values[0], values[1]), (expected[0], expected[1]), tolerance)


def _copies(drawn: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(value.clone() if hasattr(value, "clone") else value for value in drawn)


@contextlib.contextmanager
def precision_state(precision: str) -> Iterator[None]:
    """Let PyTorch multiply fp32 matrices as TF32 for the class "tf32" and in full precision otherwise; restore the rest."""
    import torch

    allowed = precision == "tf32"
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
        now = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        if now != (allowed, allowed):
            raise RuntimeError(f"PyTorch's TF32 switches were changed to {now} while they had to be {allowed}")
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
