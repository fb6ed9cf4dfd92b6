"""Linear self-attention of one head: o = φ(q)·s / (φ(q)·z + eps), s = φ(k)ᵀ·v, z[d] = Σ_m φ(k)[m, d],
φ(x) = x + 1 for x > 0, else exp(x); the denominator is one number per row.

Inputs: q, k, v [M, D] fp32, uniform in [-3, 3); eps float. Output: o [M, D] fp32. Matrix operands may be rounded to TF32.
F = 4·M·D² + 3·M·D, Q = 4·M·D·s: s and z are internal.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
    """Return q, k, v, each [M, D], and eps."""
    q, k, v = (draw.uniform(case["M"], case["D"], dtype=case.dtype, low=-3.0, high=3.0) for _ in range(3))
    return q, k, v, case["eps"]


def phi(x: torch.Tensor) -> torch.Tensor:
    """Return φ(x), elementwise."""
    return torch.where(x > 0, x + 1, torch.exp(x))


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, eps: float) -> torch.Tensor:
    """Return o [M, D], computed in fp64."""
    q_wide, k_wide = phi(q.double()), phi(k.double())
    denominator = q_wide @ k_wide.sum(dim=0) + eps
    return (q_wide @ (k_wide.T @ v.double()) / denominator[:, None]).float()


OPERATOR = Definition(inputs=inputs, reference=reference)
