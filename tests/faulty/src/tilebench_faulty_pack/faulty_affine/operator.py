"""faulty_affine: y = 2·x + 1, where the case says how the kernel of the `faulty` backend is to misbehave.

Input: x [n] in the case's dtype. Output: y [n] in the same dtype. F = 2·n, Q = 2·n·s.
"""

import torch

from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor]:
    """Return x [n]; of the fault "reference" one element is infinite, which no reference may be."""
    x = draw.values(case["n"], dtype=case.dtype)
    if case["fault"] == "reference":
        x[0] = float("inf")
    return (x,)


OPERATOR = Definition(inputs=inputs)
