"""Grouped 3-D convolution (cross-correlation, no bias, zero padding, cubic kernel).

out[b, o, z, y, x] =
  Σ_{c < Cin/g, r, s, t < k} input[b, γ·Cin/g + c, z·stride + r - p, y·stride + s - p, x·stride + t - p] · weight[o, c, r, s, t],
with γ the group of o, p the padding, and zero outside the input.

Inputs: input [batch, Cin, D, H, W] and weight [Cout, Cin/groups, k, k, k] in the case's dtype, N(0, 1); the integers stride,
padding and groups. Output: [batch, Cout, D_out, H_out, W_out] in the same dtype, H_out = (H + 2·padding - k) // stride + 1 and
likewise D_out and W_out; fp32 sums. The grid has W = H.
F = 2·batch·Cout·D_out·H_out·W_out·(Cin/groups)·k³, Q = (input + weight + output)·s. fp32 products run as TF32.
"""

import torch
import torch.nn.functional as F
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor, int, int, int]:
    """Return input [batch, Cin, D, H, W], weight [Cout, Cin/groups, k, k, k], stride, padding, groups."""
    size = case["k"]
    width = case["W"] or case["H"]
    x = draw.normal(case["batch"], case["Cin"], case["D"], case["H"], width, dtype=case.dtype)
    weight = draw.normal(case["Cout"], case["Cin"] // case["groups"], size, size, size, dtype=case.dtype)
    return x, weight, case["stride"], case["padding"], case["groups"]


def reference(input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int) -> torch.Tensor:
    """Return the convolution, computed in real fp32 (TF32 is off while it runs)."""
    return F.conv3d(input.float(), weight.float(), None, stride, padding, 1, groups).to(input.dtype)


OPERATOR = Definition(inputs=inputs, reference=reference)
