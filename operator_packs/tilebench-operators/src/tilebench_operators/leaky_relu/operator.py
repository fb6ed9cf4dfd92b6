"""Leaky rectified linear unit: y[i] = x[i] if x[i] > 0, else 0.01·x[i].

Inputs: x [n] in the case's dtype, N(0, 1), and n. Output: y [n] in the same dtype; the product is rounded once.
F = 2·n (comparison, product), Q = 2·n·s.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, int]:
    """Return x [n] and n."""
    return draw.normal(case["n"], dtype=case.dtype), case["n"]


def reference(x: torch.Tensor, n: int) -> torch.Tensor:
    """Return y [n], computed in fp64 for fp32 inputs and in fp32 for narrower ones."""
    wide = x.to(torch.float64 if x.dtype == torch.float32 else torch.float32)
    return torch.where(wide > 0, wide, 0.01 * wide).to(x.dtype)


OPERATOR = Definition(inputs=inputs, reference=reference)
