"""Grouped 2-D convolution (cross-correlation, no bias, zero padding, square kernel).

out[b, o, y, x] = Σ_{c < Cin/g, s, t < k} input[b, γ·Cin/g + c, y·stride + s - p, x·stride + t - p] · weight[o, c, s, t],
with γ the group of o, p the padding, and zero outside the input.

Inputs: input [batch, Cin, H, W] and weight [Cout, Cin/groups, k, k] in the case's dtype, N(0, 1); the integers stride,
padding and groups. Output: [batch, Cout, H_out, W_out] in the same dtype, H_out = (H + 2·padding - k) // stride + 1 and
likewise W_out; fp32 sums. The grid has W = H.
F = 2·batch·Cout·H_out·W_out·(Cin/groups)·k², Q = (input + weight + output)·s. fp32 products run as TF32.
"""

import torch
import torch.nn.functional as F
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor, int, int, int]:
    """Return input [batch, Cin, H, W], weight [Cout, Cin/groups, k, k], stride, padding, groups."""
    size = case["k"]
    width = case["W"] or case["H"]
    x = draw.normal(case["batch"], case["Cin"], case["H"], width, dtype=case.dtype)
    weight = draw.normal(case["Cout"], case["Cin"] // case["groups"], size, size, dtype=case.dtype)
    return x, weight, case["stride"], case["padding"], case["groups"]


def reference(input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int) -> torch.Tensor:
    """Return the convolution, computed in real fp32 (TF32 is off while it runs)."""
    return F.conv2d(input.float(), weight.float(), None, stride, padding, 1, groups).to(input.dtype)


OPERATOR = Definition(inputs=inputs, reference=reference)
