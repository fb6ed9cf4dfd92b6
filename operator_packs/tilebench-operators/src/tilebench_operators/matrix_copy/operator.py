"""Matrix copy: B[i, j] = A[i, j], with storage of its own.

Input: A [N, N] in the case's dtype, N(0, 1); int8 uniform in [-64, 64]. Output: B [N, N] in the same dtype.
F = 0, Q = 2·N²·s.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor]:
    """Return A [N, N]."""
    return (draw.values(case["N"], case["N"], dtype=case.dtype),)


OPERATOR = Definition(inputs=inputs)
