"""Root-mean-square normalization over the last axis: y[r, k] = x[r, k] / sqrt(Σ_k x[r, k]² / K + eps) · weight[k].

Inputs: x [1, rows, K], weight [K] in the case's dtype, N(0, 1); eps (1e-6).
Output: y [1, rows, K] in the same dtype; the arithmetic is fp32.
F = 4·rows·K, Q = 2·rows·K·s + K·s: one read, one write, the weights once.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Return x [1, rows, K], weight [K] and eps."""
    x = draw.normal(1, case["rows"], case["K"], dtype=case.dtype)
    weight = draw.normal(case["K"], dtype=case.dtype)
    return x, weight, case["eps"]


def reference(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Return y [1, rows, K], computed in fp64 for fp32 inputs and in fp32 for narrower ones."""
    wide = torch.float64 if x.dtype == torch.float32 else torch.float32
    return torch.nn.functional.rms_norm(x.to(wide), weight.shape, weight.to(wide), eps).to(x.dtype)


OPERATOR = Definition(inputs=inputs, reference=reference)
