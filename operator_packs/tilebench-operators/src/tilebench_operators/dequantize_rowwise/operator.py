"""Rowwise dequantisation: y[r, c] = state_x[r]·x[r, c] / 127.

Inputs: x [rows, cols], int8, uniform in [-128, 126]; state_x [rows], fp32, uniform in [0, 10), the rows' maxima.
Output: y [rows, cols], fp16; the arithmetic is fp32. F = 2·rows·cols, Q = 3·rows·cols + 4·rows.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x [rows, cols] and state_x [rows]."""
    x = draw.integers(case["rows"], case["cols"], dtype=case.dtype, low=-128, high=126)
    return x, draw.uniform(case["rows"], dtype="fp32", high=10.0)


def reference(x: torch.Tensor, state_x: torch.Tensor) -> torch.Tensor:
    """Return y [rows, cols], computed in fp64."""
    return (state_x.double()[:, None] * x / 127.0).to(torch.float16)


OPERATOR = Definition(inputs=inputs, reference=reference)
