"""Rectified linear unit: y[i] = max(x[i], 0); NaN stays NaN, as in PyTorch.

Input: x [n] in the case's dtype, N(0, 1); int8 uniform in [-64, 64]. Output: y [n] in the same dtype.
F = n, Q = 2·n·s.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor]:
    """Return x [n]."""
    return (draw.values(case["n"], dtype=case.dtype, integers=(-64, 64)),)


OPERATOR = Definition(inputs=inputs)
