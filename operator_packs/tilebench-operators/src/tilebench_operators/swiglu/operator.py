"""SwiGLU's gate: z[m, n] = x[m, n]·sigmoid(x[m, n])·y[m, n].

Inputs: x, y [M, N] in the case's dtype, N(0, 1). Output: z [M, N] in the same dtype; the arithmetic is fp32, rounded
once. F = 5·M·N (exponential, sum, division, two products), Q = 3·M·N·s.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x [M, N] and y [M, N]."""
    x = draw.normal(case["M"], case["N"], dtype=case.dtype)
    y = draw.normal(case["M"], case["N"], dtype=case.dtype)
    return x, y


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return z [M, N], computed in fp64 for fp32 inputs and in fp32 for narrower ones."""
    wide = torch.float64 if x.dtype == torch.float32 else torch.float32
    return torch.nn.functional.silu(x.to(wide)).mul_(y).to(x.dtype)


OPERATOR = Definition(inputs=inputs, reference=reference)
