"""Selection of the k largest values, in descending order.

Inputs: x [N] fp32, N(0, 1); N and k as numbers, k <= N. Output: [k] fp32; values only move.
F = 0 (comparisons only), Q = 4·(N + k).
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, int, int]:
    """Return x [N], N and k."""
    return draw.normal(case["N"], dtype=case.dtype), case["N"], case["k"]


OPERATOR = Definition(inputs=inputs)
