"""Histogram of small whole numbers: hist[b] = how many i have x[i] = b.

Inputs: x [N] int32, uniform in [0, num_bins), N and num_bins; a case with `used_bins` draws from [0, used_bins) only.
Output: hist [num_bins] int32. F = N (integer additions), Q = 4·(N + num_bins): x is read once.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, int, int]:
    """Return x [N], N and num_bins."""
    used = case.params.get("used_bins", case["num_bins"])
    return draw.integers(case["N"], dtype="int32", low=0, high=used - 1), case["N"], case["num_bins"]


def reference(x: torch.Tensor, N: int, num_bins: int) -> torch.Tensor:
    """Return hist [num_bins] int32, counted by `bincount`, which waits for the device and so is no fair baseline."""
    return torch.bincount(x, minlength=num_bins).to(torch.int32)


OPERATOR = Definition(inputs=inputs, reference=reference)
