"""Layer normalization over the last axis: y[r, k] = (x[r, k] - m[r]) / sqrt(v[r] + eps) · weight[k] + bias[k].

m[r] and v[r] are the mean and the biased variance of row r; eps = 1e-5, the default of `run`.
Inputs: x [1, rows, K], weight [K], bias [K] in the case's dtype, N(0, 1). Output: y [1, rows, K] in the same dtype;
the arithmetic is fp32. F = 7·rows·K, Q = 2·rows·K·s + 2·K·s: one read, one write, the parameters once.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return x [1, rows, K], weight [K] and bias [K]."""
    x = draw.normal(1, case["rows"], case["K"], dtype=case.dtype)
    weight = draw.normal(case["K"], dtype=case.dtype)
    bias = draw.normal(case["K"], dtype=case.dtype)
    return x, weight, bias


def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """Return y [1, rows, K], computed in fp64 for fp32 inputs and in fp32 for narrower ones."""
    wide = torch.float64 if x.dtype == torch.float32 else torch.float32
    y = torch.nn.functional.layer_norm(x.to(wide), weight.shape, weight.to(wide), bias.to(wide), eps)
    return y.to(x.dtype)


OPERATOR = Definition(inputs=inputs, reference=reference)
