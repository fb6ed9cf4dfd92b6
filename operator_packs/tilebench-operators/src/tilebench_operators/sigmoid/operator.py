"""Logistic sigmoid: y[i] = 1 / (1 + exp(-x[i])).

Inputs: x [n] in the case's dtype, N(0, 1), and n. Output: y [n] in the same dtype; the arithmetic is fp32.
F = 4·n (negation, exponential, sum, division), Q = 2·n·s.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, int]:
    """Return x [n] and n."""
    return draw.normal(case["n"], dtype=case.dtype), case["n"]


def reference(x: torch.Tensor, n: int) -> torch.Tensor:
    """Return y [n], computed in fp64 for fp32 inputs and in fp32 for narrower ones."""
    wide = torch.float64 if x.dtype == torch.float32 else torch.float32
    return torch.sigmoid(x.to(wide)).to(x.dtype)


OPERATOR = Definition(inputs=inputs, reference=reference)
