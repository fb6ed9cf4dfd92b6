"""One Jacobi sweep: out[r, c] = 0.25·(x[r-1, c] + x[r+1, c] + x[r, c-1] + x[r, c+1]) inside, out = x on the border.

Inputs: x [rows, cols] in the case's dtype, N(0, 1), and the integers rows, cols. Output: [rows, cols] in the same dtype.
The arithmetic is in the input's dtype, added in the order up, down, left, right: every sum is rounded.
F = 4·rows·cols, Q = 2·rows·cols·s. `impl_torch.py` does just that and is the reference.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, int, int]:
    """Return x [rows, cols], rows, cols."""
    rows, cols = case["rows"], case["cols"] or case["rows"]
    return draw.normal(rows, cols, dtype=case.dtype), rows, cols


OPERATOR = Definition(inputs=inputs)
