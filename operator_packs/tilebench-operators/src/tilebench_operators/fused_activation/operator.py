"""A gated, biased SiLU: z[i] = x[i]·gate[i] + bias[i], y[i] = z[i]·sigmoid(z[i]).

Inputs: x, gate, bias [n], fp32, N(0, 1). Output: y [n], fp32.
F = 6·n (product, sum, exponential, sum, division, product), Q = 4·n·s.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return x [n], gate [n] and bias [n]."""
    x = draw.normal(case["n"], dtype=case.dtype)
    gate = draw.normal(case["n"], dtype=case.dtype)
    bias = draw.normal(case["n"], dtype=case.dtype)
    return x, gate, bias


def reference(x: torch.Tensor, gate: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return y [n], computed in fp64."""
    z = x.double() * gate.double() + bias.double()
    return torch.nn.functional.silu(z).to(x.dtype)


OPERATOR = Definition(inputs=inputs, reference=reference)
