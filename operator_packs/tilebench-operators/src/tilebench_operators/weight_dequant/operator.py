"""Blockwise dequantisation: Y[r, c] = X[r, c]·S[r // T, c // T].

Inputs: X [M, N] and S [⌈M/T⌉, ⌈N/T⌉] in the case's dtype, N(0, 1), then M, N and T. Output: Y [M, N] in the same dtype;
the product is fp32, rounded once. F = M·N, Q = 2·M·N·s + ⌈M/T⌉·⌈N/T⌉·s.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor, int, int, int]:
    """Return X [M, N], S [⌈M/T⌉, ⌈N/T⌉], M, N and T; N is M where the case names none."""
    M, T = case["M"], case["T"]
    N = case.params.get("N", M)
    X = draw.normal(M, N, dtype=case.dtype)
    S = draw.normal(-(-M // T), -(-N // T), dtype=case.dtype)
    return X, S, M, N, T


def reference(X: torch.Tensor, S: torch.Tensor, M: int, N: int, T: int) -> torch.Tensor:
    """Return Y [M, N], computed in fp64 for fp32 inputs and in fp32 for narrower ones."""
    wide = torch.float64 if X.dtype == torch.float32 else torch.float32
    rows = torch.arange(M, device=X.device) // T
    cols = torch.arange(N, device=X.device) // T
    return (S.to(wide)[rows[:, None], cols] * X).to(X.dtype)


OPERATOR = Definition(inputs=inputs, reference=reference)
