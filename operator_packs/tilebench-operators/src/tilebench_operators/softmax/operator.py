"""Softmax over the last axis: y[r, c] = exp(x[r, c] - m[r]) / Σ_c exp(x[r, c] - m[r]), m[r] = max_c x[r, c].

Input: x [rows, cols] in the case's dtype, N(0, 1). Output: y [rows, cols] in the same dtype; the arithmetic is fp32.
F = 5·rows·cols (maximum, subtraction, exponential, sum, division), Q = 2·rows·cols·s: one read, one write.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor]:
    """Return x [rows, cols]."""
    return (draw.normal(case["rows"], case["cols"], dtype=case.dtype),)


def reference(x: torch.Tensor) -> torch.Tensor:
    """Return y [rows, cols], computed in fp64 for fp32 inputs and in fp32 for narrower ones."""
    wide = torch.float64 if x.dtype == torch.float32 else torch.float32
    return torch.softmax(x.to(wide), dim=-1).to(x.dtype)


OPERATOR = Definition(inputs=inputs, reference=reference)
