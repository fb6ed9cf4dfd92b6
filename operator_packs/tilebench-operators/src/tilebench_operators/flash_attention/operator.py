"""Causal attention: o[i] = Σ_{j<=i} softmax_j(q[i]·k[j] / √D)·v[j], for every batch entry and head.

Inputs: q, k, v [B, H, S, D] fp16, N(0, 1). Output: o [B, H, S, D] fp16; scores, softmax and sums are fp32.
F = 2·B·H·S·(S + 1)·D: four operations per visible pair of positions and element of D. Q = 4·B·H·S·D·s.
"""

import torch
from tilebench_core import Case, Definition, Draw

CHUNK = 2048  # query rows at a time: their fp32 scores take CHUNK·S·4 bytes


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return q, k and v, each [B, H, S, D]."""
    shape = (case["B"], case["H"], case["S"], case["D"])
    q, k, v = (draw.normal(*shape, dtype=case.dtype) for _ in range(3))
    return q, k, v


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return o [B, H, S, D], computed in fp32, one head and a band of query rows at a time."""
    o = torch.empty_like(q)
    S, D = q.shape[-2:]
    positions = torch.arange(S, device=q.device)
    heads = (t.flatten(0, 1) for t in (q, k, v, o))
    for q_head, k_head, v_head, o_head in zip(*heads, strict=True):
        k_wide, v_wide = k_head.float(), v_head.float()
        for start in range(0, S, CHUNK):
            stop = min(S, start + CHUNK)
            scores = q_head[start:stop].float() @ k_wide[:stop].T * D**-0.5
            scores.masked_fill_(positions[:stop] > positions[start:stop, None], float("-inf"))
            o_head[start:stop] = torch.softmax(scores, dim=-1) @ v_wide[:stop]
    return o


OPERATOR = Definition(inputs=inputs, reference=reference)
