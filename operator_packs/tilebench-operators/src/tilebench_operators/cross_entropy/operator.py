"""Cross entropy per row: loss[b] = log Σ_c exp(z[b, c]) - z[b, t[b]].

Inputs: logits z [B, C] in the case's dtype, N(0, 1); targets t [B] int64, uniform in [0, C).
Output: loss [B] in the logits' dtype; the arithmetic is fp32. F = 4·B·C, Q = B·C·s + 8·B + B·s: one read of the logits.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits [B, C] and targets [B]."""
    logits = draw.normal(case["B"], case["C"], dtype=case.dtype)
    return logits, draw.integers(case["B"], dtype="int64", low=0, high=case["C"] - 1)


def reference(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return loss [B], computed in fp64 for fp32 logits and in fp32 for narrower ones."""
    wide = torch.float64 if logits.dtype == torch.float32 else torch.float32
    return torch.nn.functional.cross_entropy(logits.to(wide), targets, reduction="none").to(logits.dtype)


OPERATOR = Definition(inputs=inputs, reference=reference)
