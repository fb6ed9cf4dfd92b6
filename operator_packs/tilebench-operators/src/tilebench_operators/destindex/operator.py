"""Scatter of token rows by index: out_nope[dest[t]] = kv_nope[t] and out_rope[dest[t]] = kv_rope[t].

Inputs: kv_nope [T, 12, 128] and kv_rope [T, 1, 64] in the case's dtype, N(0, 1), int8 uniform in [-64, 64];
dest [T] int64, a permutation of 0..T-1, so that every row of the results is written once.
Outputs: out_nope [T, 12, 128], out_rope [T, 1, 64]. F = 0, Q = 2·T·1600·s + 8·T.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return kv_nope [T, heads, head_dim], kv_rope [T, 1, rope_dim] and dest [T]."""
    tokens = case["seq_len"]
    nope = draw.values(tokens, case["heads"], case["head_dim"], dtype=case.dtype)
    rope = draw.values(tokens, 1, case["rope_dim"], dtype=case.dtype)
    return nope, rope, draw.permutation(tokens)


OPERATOR = Definition(inputs=inputs)
