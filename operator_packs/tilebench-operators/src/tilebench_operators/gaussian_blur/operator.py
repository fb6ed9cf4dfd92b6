"""Blur of one image with one small kernel: out[y, x] = Σ_{i, j} input[y + i - ⌊kr/2⌋, x + j - ⌊kc/2⌋] · kernel[i, j].

Cross-correlation of the same size, zero outside. Inputs: input [rows·cols], flat, N(0, 1), and kernel [krows·kcols], flat,
uniform in [0, 1) and divided by its sum (so it does not separate), both in the case's dtype; the integers rows, cols,
krows, kcols, the last two odd. Output: [rows·cols], flat, same dtype; fp32 sums.
F = 2·krows·kcols·rows·cols, Q = (2·rows·cols + krows·kcols)·s.
"""

import torch
import torch.nn.functional as F
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor, int, int, int, int]:
    """Return input [rows·cols], kernel [krows·kcols], rows, cols, krows, kcols."""
    rows, cols, krows, kcols = case["rows"], case["cols"] or case["rows"], case["krows"], case["kcols"]
    image = draw.normal(rows * cols, dtype=case.dtype)
    weights = draw.uniform(krows * kcols, dtype="fp32")
    return image, (weights / weights.sum()).to(image.dtype), rows, cols, krows, kcols


def reference(input: torch.Tensor, kernel: torch.Tensor, rows: int, cols: int, krows: int, kcols: int) -> torch.Tensor:
    """Return the blurred image [rows·cols], summed tap by tap in fp32 (fp64 for fp32 inputs)."""
    wide = torch.float64 if input.dtype == torch.float32 else torch.float32
    image = F.pad(input.view(rows, cols).to(wide), (kcols // 2, kcols // 2, krows // 2, krows // 2))
    weights = kernel.to(wide)
    out = torch.zeros(rows, cols, dtype=wide, device=input.device)
    for tap in range(krows * kcols):
        row, column = divmod(tap, kcols)
        out.addcmul_(image[row : row + rows, column : column + cols], weights[tap])
    return out.flatten().to(input.dtype)


OPERATOR = Definition(inputs=inputs, reference=reference)
