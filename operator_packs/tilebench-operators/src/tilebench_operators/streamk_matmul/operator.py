"""Matrix multiplication with stream-K scheduling: c[i, j] = Σ_l a[i, l]·b[l, j], summed in fp32.

Inputs: a [m, k], b [k, n], row-major, in the case's dtype, N(0, 1). Output: c [m, n] in the same dtype. fp32 operands
may be multiplied as TF32. The grid's shapes leave the last wave of output tiles incomplete: stream-K splits that wave's
work evenly along k over all multiprocessors.
F = 2·m·n·k, Q = (m·k + k·n + m·n)·s.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a [m, k] and b [k, n]."""
    return draw.normal(case["m"], case["k"], dtype=case.dtype), draw.normal(case["k"], case["n"], dtype=case.dtype)


def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return c [m, n]: a full fp32 product, rounded once to the inputs' dtype."""
    return torch.matmul(a.float(), b.float()).to(a.dtype)


OPERATOR = Definition(inputs=inputs, reference=reference)
