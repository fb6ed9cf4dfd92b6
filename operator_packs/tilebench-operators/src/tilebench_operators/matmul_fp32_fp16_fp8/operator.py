"""Matrix multiplication: c[m, n] = Σ_k a[m, k]·b[k, n], summed in fp32.

Inputs: a [M, K], b [K, N], row-major, in the case's dtype, N(0, 1); for fp8 both are drawn in fp32 and scaled by
K^(-1/4) before the cast, so that c stays within the range of the type. Output: c [M, N] in the same dtype, rounded
once; the cast to fp8 saturates at ±448. fp32 operands may be multiplied as TF32.
F = 2·M·N·K, Q = (M·K + K·N + M·N)·s.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a [M, K] and b [K, N]."""
    m, n, k = case["M"], case["N"], case["K"]
    if case.dtype == "fp8_e4m3":
        scale = k**-0.25
        a = draw.normal(m, k, dtype="fp32").mul_(scale).clamp_(-448, 448).to(torch.float8_e4m3fn)
        b = draw.normal(k, n, dtype="fp32").mul_(scale).clamp_(-448, 448).to(torch.float8_e4m3fn)
        return a, b
    return draw.normal(m, k, dtype=case.dtype), draw.normal(k, n, dtype=case.dtype)


def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return c [M, N]: a full fp32 product, rounded once to the inputs' dtype."""
    c = torch.matmul(a.float(), b.float())
    return c.clamp_(-448, 448).to(a.dtype) if a.dtype == torch.float8_e4m3fn else c.to(a.dtype)


OPERATOR = Definition(inputs=inputs, reference=reference)
