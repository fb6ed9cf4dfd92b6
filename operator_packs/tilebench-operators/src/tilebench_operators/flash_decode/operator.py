"""Second stage of split-KV decoding: combine partial attention outputs by their log-sum-exp weights.

o[b, h] = Σ_{s<nb[b]} e^{lse[b, h, s] - m}·mid_o[b, h, s] / Σ_{s<nb[b]} e^{lse[b, h, s] - m}, m = max_{s<nb[b]} lse[b, h, s],
with nb[b] = ⌈b_seqlen[b] / block_seq⌉ splits that hold data.

Inputs: mid_o [B, H, splits, D] and mid_lse [B, H, splits] fp32, N(0, 1); b_seqlen [B] int32, at least 1, known to the
device only; block_seq int. Output: o [B, H, D] fp32.
F = 4·B·H·nb·D, Q = 4·(B·H·nb·(D + 1) + B·H·D).
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """Return mid_o [B, H, splits, D], mid_lse [B, H, splits], b_seqlen [B] and block_seq.

    All sequences have the case's length; with `ragged`, entry b has 1 + (length - 1)·b / B tokens or a few fewer.
    """
    B, H, D, block_seq, seq_len = (case[name] for name in ("B", "H", "D", "block_seq", "seq_len"))
    splits = -(-seq_len // block_seq)
    mid_o = draw.normal(B, H, splits, D, dtype="fp32")
    mid_lse = draw.normal(B, H, splits, dtype="fp32")
    b_seqlen = torch.full([B], seq_len, dtype=torch.int32, device=mid_o.device)
    if case.params.get("ragged"):
        fewer = draw.integers(B, dtype="int32", low=0, high=block_seq)
        fractions = torch.arange(B, dtype=torch.int32, device=mid_o.device)
        b_seqlen = (1 + (seq_len - 1) * fractions // B - fewer).clamp_(min=1).to(torch.int32)
    return mid_o, mid_lse, b_seqlen, block_seq


def reference(mid_o: torch.Tensor, mid_lse: torch.Tensor, b_seqlen: torch.Tensor, block_seq: int) -> torch.Tensor:
    """Return o [B, H, D], computed in fp64."""
    used = (b_seqlen + block_seq - 1) // block_seq
    valid = torch.arange(mid_lse.shape[2], device=mid_lse.device) < used[:, None, None]
    weights = torch.softmax(mid_lse.double().masked_fill(~valid, float("-inf")), dim=-1)
    return torch.einsum("bhs,bhsd->bhd", weights, mid_o.double()).float()


OPERATOR = Definition(inputs=inputs, reference=reference)
