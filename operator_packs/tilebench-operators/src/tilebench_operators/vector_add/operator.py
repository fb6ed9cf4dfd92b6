"""Vector addition: z[i] = x[i] + y[i].

Inputs: x [n], y [n] in the case's dtype, N(0, 1); int8 uniform in [-32, 32], so that sums cannot overflow.
Output: z [n] in the same dtype. F = n, Q = 3·n·s.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x [n] and y [n]."""
    x = draw.values(case["n"], dtype=case.dtype, integers=(-32, 32))
    y = draw.values(case["n"], dtype=case.dtype, integers=(-32, 32))
    return x, y


OPERATOR = Definition(inputs=inputs)
