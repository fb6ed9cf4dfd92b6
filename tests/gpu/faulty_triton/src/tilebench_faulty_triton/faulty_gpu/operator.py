"""faulty_gpu: y = 2·x + 1. Input: x [n], N(0, 1). Output: y [n] in the same dtype. F = 2·n, Q = 2·n·s."""

import torch

from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor]:
    """Return x [n]."""
    return (draw.normal(case["n"], dtype=case.dtype),)


OPERATOR = Definition(inputs=inputs)
