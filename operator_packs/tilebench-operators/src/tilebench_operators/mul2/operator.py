"""Doubling: y[i] = 2·x[i].

Input: x [n] in the case's dtype, N(0, 1); int8 uniform in [-32, 32], so that products cannot overflow.
Output: y [n] in the same dtype; doubling is exact in all of them. F = n, Q = 2·n·s.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor]:
    """Return x [n]."""
    return (draw.values(case["n"], dtype=case.dtype, integers=(-32, 32)),)


OPERATOR = Definition(inputs=inputs)
