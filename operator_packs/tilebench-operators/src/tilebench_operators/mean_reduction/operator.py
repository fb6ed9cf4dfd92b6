"""Mean over the last axis: y[m] = Σ_n x[m, n] / N, added up and returned in fp32 for every input dtype.

Inputs: x [M, N] in the case's dtype, N(0, 1); dim = 1. Output: y [M] fp32. F = M·N, Q = M·N·s + 4·M: x is read once.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, int]:
    """Return x [M, N] and dim."""
    return draw.normal(case["M"], case["N"], dtype=case.dtype), 1


def reference(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return y [M] fp32, added up in fp64."""
    return x.mean(dim=dim, dtype=torch.float64).to(torch.float32)


OPERATOR = Definition(inputs=inputs, reference=reference)
