"""Radix sort: int32 keys in ascending order, least significant digit first.

Input: data [n] int32, uniform in [low, 2^31 - 1] with low = 0 on the grid and -2^31 in one edge case.
Output: [n] int32. F = 0, Q = 8·n.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor]:
    """Return data [n]."""
    return (draw.integers(case["n"], dtype=torch.int32, low=case["low"], high=case["high"]),)


OPERATOR = Definition(inputs=inputs)
