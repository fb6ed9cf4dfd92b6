"""int8 times 2-bit matrix multiplication: c[m, n] = Σ_k a[m, k]·w[k, n], exact in int32.

Inputs: a [M, K] int8, uniform whole numbers in [-64, 64]; packed [K/4, N] uint8, uniform in [0, 255], with four fields
per byte: w[i·K/4 + j, n] = ((packed[j, n] >> 2i) & 3) - 1, i = 0..3, so field i holds the i-th quarter of w's rows and
its values are -1, 0, 1, 2. Output: c [M, N] int32. K is a multiple of 4.
F = 2·M·N·K (integer), Q = M·K + K·N/4 + 4·M·N.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a [M, K] and packed [K/4, N]."""
    a = draw.integers(case["M"], case["K"], dtype="int8", low=-64, high=64)
    packed = draw.integers(case["K"] // 4, case["N"], dtype="uint8", low=0, high=255)
    return a, packed


OPERATOR = Definition(inputs=inputs)
