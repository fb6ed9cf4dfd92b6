"""2-D max pooling: out[n, c, y, x] = max over i, j < k of input[n, c, y·s + i - p, x·s + j - p], -inf outside.

Inputs: input [N·C·H·W], flat NCHW, in the case's dtype, N(0, 1), and the integers N, C, H, W, kernel_size k, stride s,
padding p. Output: [N·C·H_out·W_out], flat, same dtype, H_out = (H + 2p - k) // s + 1 and likewise W_out (floor mode).
F = N·C·H_out·W_out·k² comparisons, Q = (N·C·H·W + N·C·H_out·W_out)·s. A maximum is exact: `impl_torch.py` is the reference.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, int, int, int, int, int, int, int]:
    """Return input [N·C·H·W], N, C, H, W, kernel_size, stride, padding."""
    images, channels, height, width = case["N"], case["C"], case["H"], case["W"] or case["H"]
    x = draw.normal(images * channels * height * width, dtype=case.dtype)
    return x, images, channels, height, width, case["kernel_size"], case["stride"], case["padding"]


OPERATOR = Definition(inputs=inputs)
