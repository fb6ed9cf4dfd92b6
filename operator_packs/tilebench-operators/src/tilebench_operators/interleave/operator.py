"""Interleaving of two arrays: out[2i] = a[i], out[2i + 1] = b[i].

Inputs: a [N], b [N] in the case's dtype, N(0, 1); int8 uniform in [-64, 64]; N as a number.
Output: out [2N] in the same dtype. F = 0, Q = 4·N·s.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return a [N], b [N] and N."""
    n = case["n"]
    return draw.values(n, dtype=case.dtype), draw.values(n, dtype=case.dtype), n


OPERATOR = Definition(inputs=inputs)
