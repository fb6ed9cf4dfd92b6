"""Gating of a mixture of experts: per token the k largest of E logits, and the softmax over these k.

indices[m, 0..k) are the experts in descending order of their logits, the lowest index first on ties, and
weights[m, j] = exp(z[m, i_j]) / Σ_j exp(z[m, i_j]).
Inputs: logits z [M, E] in the case's dtype, N(0, 1); M, E and k.
Outputs: weights [M, k] in the logits' dtype (fp32 arithmetic), indices [M, k] int32.
F = M·(4·k·E + 3·k), Q = M·E·s + M·k·s + 4·M·k: the logits are read once.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, int, int, int]:
    """Return logits [M, E], M, E and k."""
    logits = draw.normal(case["M"], case["E"], dtype=case.dtype)
    if "levels" in case.params:  # rounded to 1/levels, for many ties
        logits = (logits * case["levels"]).round() / case["levels"]
    return logits, case["M"], case["E"], case["k"]


def reference(logits: torch.Tensor, M: int, E: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights [M, k] and indices [M, k] by a stable sort and a softmax in fp64 (fp32 for narrower logits)."""
    values, indices = torch.sort(logits, dim=-1, descending=True, stable=True)
    wide = torch.float64 if logits.dtype == torch.float32 else torch.float32
    weights = torch.softmax(values[:, :k].to(wide), dim=-1).to(logits.dtype)
    return weights, indices[:, :k].to(torch.int32).contiguous()


OPERATOR = Definition(inputs=inputs, reference=reference)
