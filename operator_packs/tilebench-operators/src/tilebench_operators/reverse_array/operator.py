"""Reversal of an array: out[i] = x[n - 1 - i], out of place.

Input: x [n] in the case's dtype, N(0, 1); int8 uniform in [-64, 64]. Output: out [n] in the same dtype.
F = 0, Q = 2·n·s.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor]:
    """Return x [n]."""
    return (draw.values(case["n"], dtype=case.dtype),)


OPERATOR = Definition(inputs=inputs)
