"""tuned_affine: y = 2·x + 1. Input: x [n]. Output: y [n], both in the case's dtype. F = 2·n, Q = 2·n·s."""

import torch

from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor]:
    """Return x [n]."""
    return (draw.values(case["n"], dtype=case.dtype),)


OPERATOR = Definition(inputs=inputs)
