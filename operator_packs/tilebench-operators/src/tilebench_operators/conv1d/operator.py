"""Grouped 1-D convolution (cross-correlation, no bias, zero padding).

out[b, o, l] = Σ_{c < Cin/g, t < k} input[b, γ·Cin/g + c, l·stride + t - padding] · weight[o, c, t], with γ the group of o.

Inputs: input [batch, Cin, L] and weight [Cout, Cin/groups, k] in the case's dtype, N(0, 1); the integers stride, padding
and groups. Output: [batch, Cout, L_out] in the same dtype, L_out = (L + 2·padding - k) // stride + 1; fp32 sums.
F = 2·batch·Cout·L_out·(Cin/groups)·k, Q = (input + weight + output)·s. fp32 products run as TF32.
"""

import torch
import torch.nn.functional as F
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor, int, int, int]:
    """Return input [batch, Cin, L], weight [Cout, Cin/groups, k], stride, padding, groups."""
    x = draw.normal(case["batch"], case["Cin"], case["L"], dtype=case.dtype)
    weight = draw.normal(case["Cout"], case["Cin"] // case["groups"], case["k"], dtype=case.dtype)
    return x, weight, case["stride"], case["padding"], case["groups"]


def reference(input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int) -> torch.Tensor:
    """Return the convolution [batch, Cout, L_out], computed in real fp32 (TF32 is off while it runs)."""
    return F.conv1d(input.float(), weight.float(), None, stride, padding, 1, groups).to(input.dtype)


OPERATOR = Definition(inputs=inputs, reference=reference)
