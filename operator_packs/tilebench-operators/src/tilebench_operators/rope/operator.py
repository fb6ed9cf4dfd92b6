"""Rotary position embedding, half-split: with the halves q1 = q[..., :d/2] and q2 = q[..., d/2:],

    y1 = q1·cos - q2·sin,  y2 = q2·cos + q1·sin.

Inputs: q [B, S, H, d], cos [S, d/2] and sin [S, d/2] in the case's dtype, all N(0, 1) (no true angles).
Output: y [B, S, H, d] in the same dtype. F = 3·B·S·H·d, Q = 2·B·S·H·d·s + S·d·s.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return q [B, S, H, d], cos [S, d/2] and sin [S, d/2]."""
    q = draw.normal(case["B"], case["S"], case["H"], case["d"], dtype=case.dtype)
    cos = draw.normal(case["S"], case["d"] // 2, dtype=case.dtype)
    sin = draw.normal(case["S"], case["d"] // 2, dtype=case.dtype)
    return q, cos, sin


def reference(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return y [B, S, H, d], computed in fp64 for fp32 inputs and in fp32 for narrower ones."""
    wide = torch.float64 if q.dtype == torch.float32 else torch.float32
    q1, q2 = q.to(wide).chunk(2, dim=-1)
    cos, sin = cos.to(wide)[:, None, :], sin.to(wide)[:, None, :]  # [S, 1, d/2]
    return torch.cat(((q1 * cos - q2 * sin).to(q.dtype), (q2 * cos + q1 * sin).to(q.dtype)), dim=-1)


OPERATOR = Definition(inputs=inputs, reference=reference)
