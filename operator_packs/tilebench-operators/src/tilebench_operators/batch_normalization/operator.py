"""Batch normalization in training mode: y[n, c] = (x[n, c] - m[c]) / sqrt(v[c] + eps) · gamma[c] + beta[c].

m[c] and v[c] are the mean and the biased variance of channel c over the batch; there are no running statistics.
Inputs: x [N, C], gamma [C], beta [C] in the case's dtype, N(0, 1); N, C and eps (1e-5).
Output: y [N, C] in the same dtype; the arithmetic is fp32.
F = 5·N·C, Q = 2·N·C·s + 2·C·s: one read, one write, though without all of x on chip it is read twice.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, int, float]:
    """Return x [N, C], gamma [C], beta [C], N, C and eps."""
    x = draw.normal(case["N"], case["C"], dtype=case.dtype)
    gamma = draw.normal(case["C"], dtype=case.dtype)
    beta = draw.normal(case["C"], dtype=case.dtype)
    return x, gamma, beta, case["N"], case["C"], case["eps"]


def reference(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, N: int, C: int, eps: float) -> torch.Tensor:
    """Return y [N, C], computed in fp64 for fp32 inputs and in fp32 for narrower ones."""
    wide = torch.float64 if x.dtype == torch.float32 else torch.float32
    variance, mean = torch.var_mean(x.to(wide), dim=0, correction=0)
    scale = torch.rsqrt(variance + eps) * gamma.to(wide)
    return ((x.to(wide) - mean) * scale + beta.to(wide)).to(x.dtype)


OPERATOR = Definition(inputs=inputs, reference=reference)
