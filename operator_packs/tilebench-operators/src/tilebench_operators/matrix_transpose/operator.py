"""Matrix transposition: out[j, i] = x[i, j], contiguous.

Input: x [m, n] in the case's dtype, N(0, 1); int8 uniform in [-64, 64]. Output: out [n, m], contiguous, same dtype.
F = 0, Q = 2·m·n·s.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor]:
    """Return x [m, n]."""
    return (draw.values(case["m"], case["n"], dtype=case.dtype),)


OPERATOR = Definition(inputs=inputs)
