"""Kullback-Leibler divergence per row: loss[r] = Σ_c t[r, c]·(ln t[r, c] - l[r, c]); a term with t = 0 is 0.

Inputs, fp32: l = log_softmax(a) and t = softmax(spread·b) over the last axis, both [rows, cols], a and b N(0, 1);
`spread` is 1, and in an edge case so large that many t are exactly 0. Output: loss [rows] fp32.
F = 4·rows·cols (the logarithm counted as one), Q = 8·rows·cols + 4·rows: both inputs are read once.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    """Return l [rows, cols], the logarithms of the predicted probabilities, and t [rows, cols], the true ones."""
    rows, cols = case["rows"], case["cols"]
    log_predicted = torch.log_softmax(draw.normal(rows, cols, dtype=case.dtype), dim=-1)
    true = torch.softmax(draw.normal(rows, cols, dtype=case.dtype) * case["spread"], dim=-1)
    return log_predicted, true


def reference(log_predicted: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Return loss [rows] fp32, computed in fp64."""
    t = true.to(torch.float64)
    return (torch.special.xlogy(t, t) - t * log_predicted.to(torch.float64)).sum(dim=-1).to(torch.float32)


OPERATOR = Definition(inputs=inputs, reference=reference)
