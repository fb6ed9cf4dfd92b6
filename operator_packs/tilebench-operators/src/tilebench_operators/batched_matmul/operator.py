"""Batched matrix multiplication: c[b] = a[b]·b[b] for every batch entry, summed in fp32.

Inputs: a [BATCH·M·K], b [BATCH·K·N], flat, row-major, in the case's dtype, N(0, 1), and the extents BATCH, M, N, K.
Output: c [BATCH·M·N], flat, in the same dtype. fp32 operands may be multiplied as TF32.
F = 2·BATCH·M·N·K, Q = BATCH·(M·K + K·N + M·N)·s.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor, int, int, int, int]:
    """Return a [BATCH·M·K], b [BATCH·K·N], BATCH, M, N, K; a case that names only M is square."""
    batch, m = case["BATCH"], case["M"]
    n, k = case.params.get("N", m), case.params.get("K", m)
    a = draw.normal(batch * m * k, dtype=case.dtype)
    return a, draw.normal(batch * k * n, dtype=case.dtype), batch, m, n, k


def reference(a: torch.Tensor, b: torch.Tensor, BATCH: int, M: int, N: int, K: int) -> torch.Tensor:
    """Return c [BATCH·M·N]: full fp32 products, rounded once to the inputs' dtype."""
    return torch.bmm(a.view(BATCH, M, K).float(), b.view(BATCH, K, N).float()).to(a.dtype).flatten()


OPERATOR = Definition(inputs=inputs, reference=reference)
