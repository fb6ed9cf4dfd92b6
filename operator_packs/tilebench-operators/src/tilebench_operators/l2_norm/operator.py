"""L2 normalization over the last axis: y[r, k] = x[r, k] / sqrt(Σ_k x[r, k]² + eps).

Inputs: x [1, rows, K] in the case's dtype, N(0, 1); eps (1e-6). Output: y [1, rows, K] in the same dtype;
the arithmetic is fp32. F = 3·rows·K, Q = 2·rows·K·s: one read, one write.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, float]:
    """Return x [1, rows, K] and eps."""
    return draw.normal(1, case["rows"], case["K"], dtype=case.dtype), case["eps"]


def reference(x: torch.Tensor, eps: float) -> torch.Tensor:
    """Return y [1, rows, K], computed in fp64 for fp32 inputs and in fp32 for narrower ones."""
    wide = x.to(torch.float64 if x.dtype == torch.float32 else torch.float32)
    return (wide * torch.rsqrt(wide.square().sum(dim=-1, keepdim=True) + eps)).to(x.dtype)


OPERATOR = Definition(inputs=inputs, reference=reference)
