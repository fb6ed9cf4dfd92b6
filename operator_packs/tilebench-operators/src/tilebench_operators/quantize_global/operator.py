"""Narrowing: y[i] = x[i] rounded to the nearest fp16, ties to even.

Input: x [n], fp32, N(0, 1). Output: y [n], fp16; the rounding is defined, so results are compared exactly.
F = 0, Q = 6·n: four bytes read, two written.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor]:
    """Return x [n]."""
    return (draw.normal(case["n"], dtype=case.dtype),)


OPERATOR = Definition(inputs=inputs)
