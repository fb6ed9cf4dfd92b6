"""Index of the maximum over the last axis: y[m] = the lowest n with x[m, n] = max_n x[m, n].

Inputs: x [M, N] in the case's dtype, N(0, 1), and dim = 1; a case with `levels` rounds x to 1/levels, for many ties.
Output: y [M] int64. F = M·N, Q = M·N·s + 8·M: x is read once.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, int]:
    """Return x [M, N] and dim."""
    x = draw.normal(case["M"], case["N"], dtype=case.dtype)
    if "levels" in case.params:
        x = (x * case["levels"]).round() / case["levels"]
    return x, 1


OPERATOR = Definition(inputs=inputs)
