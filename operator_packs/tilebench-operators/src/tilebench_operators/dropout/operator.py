"""Dropout with a given mask: y[i] = x[i] / (1 - p) where keep[i] ≠ 0, else 0.

Inputs: x [n] in the case's dtype, N(0, 1); keep [n] in the same dtype, 1 with probability 1 - p, else 0; p, a float.
Output: y [n] in the same dtype; the arithmetic is fp32. F = n, Q = 3·n·s.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Return x [n], keep [n] and p."""
    x = draw.normal(case["n"], dtype=case.dtype)
    keep = draw.uniform(case["n"], dtype="fp32") >= case["p"]
    return x, keep.to(x.dtype), case["p"]


def reference(x: torch.Tensor, keep: torch.Tensor, p: float) -> torch.Tensor:
    """Return y [n], computed in fp64 for fp32 inputs and in fp32 for narrower ones."""
    wide = torch.float64 if x.dtype == torch.float32 else torch.float32
    return torch.where(keep != 0, x.to(wide) / (1.0 - p), 0.0).to(x.dtype)


OPERATOR = Definition(inputs=inputs, reference=reference)
