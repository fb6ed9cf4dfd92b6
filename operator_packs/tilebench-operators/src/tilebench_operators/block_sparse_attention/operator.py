"""Causal attention over listed key blocks, with grouped key/value heads:

o[b, h, m] = Σ_n softmax_n(q[b, h, m]·k[b, g, n]·scale)·v[b, g, n], over the keys n <= m whose block pair
(m // BLOCK_M, n // BLOCK_N) is listed; g = h // (H / H_kv). A row without keys gives zeros.

Inputs: q [B, H, M, D], k, v [B, H_kv, M, D] fp16, N(0, 1). The lists are in CSR form, one per layout; head h uses layout
h mod num_layout: layout_crow [num_layout·(rows + 1)] int32 holds each row block's range of entries, and layout_col
[num_layout·rows·cols] int32 their column blocks, padded with zeros. Listed blocks never lie right of the diagonal.
BLOCK_M = BLOCK_N, and D = BLOCK_D·NUM_D_BLOCKS. Output: o [B, H, M, D] fp16; scores, softmax and sums are fp32.
F = 12·B·H·BLOCK_N·D·(M - BLOCK_M): three blocks per row block, diagonal ones in full. Q = 2·B·(H + H_kv)·M·D·s.
"""

from itertools import pairwise
from typing import Any

import torch
from tilebench_core import Case, Definition, Draw


def listed(pattern: str, layout: int, row: int) -> list[int]:
    """The column blocks that `row` lists: a window of three, or a pattern with gaps and with empty rows."""
    if pattern == "window":
        return list(range(max(0, row - 2), row + 1))
    return [] if row % 4 == 2 else [column for column in range(row + 1) if (row - column + layout) % 3 == 0]


def inputs(case: Case, draw: Draw) -> tuple[Any, ...]:
    """Return the 18 arguments: tensors, CSR arrays with their strides, and the problem's constants."""
    B, H, H_kv, M, D, block = (case[name] for name in ("B", "H", "H_kv", "M", "D", "block"))
    layouts, rows = case["num_layout"], -(-M // block)
    crow, col = [], []
    for layout in range(layouts):
        lists = [listed(case["pattern"], layout, row) for row in range(rows)]
        entries = [column for row in lists for column in row]
        crow += [sum(len(row) for row in lists[:count]) for count in range(rows + 1)]
        col += entries + [0] * (rows * rows - len(entries))
    q = draw.normal(B, H, M, D, dtype=case.dtype)
    k, v = (draw.normal(B, H_kv, M, D, dtype=case.dtype) for _ in range(2))
    layout_crow = torch.tensor(crow, dtype=torch.int32, device=q.device)
    layout_col = torch.tensor(col, dtype=torch.int32, device=q.device)
    even = M % block == 0
    return (
        q, k, v, layout_crow, layout_col, rows + 1, rows * rows, layouts, D**-0.5, H, H_kv, M,
        block, even, block, even, 64, D // 64,
    )  # fmt: skip


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *layout: Any) -> torch.Tensor:
    """Return o [B, H, M, D], computed in fp32 from the listed blocks, one row block at a time."""
    layout_crow, layout_col, crow_stride, col_stride, layouts, scale, H, H_kv, M, block = layout[:10]
    o = torch.zeros_like(q)
    positions = torch.arange(M, device=q.device)
    for which in range(layouts):
        crow = layout_crow[which * crow_stride : (which + 1) * crow_stride].tolist()
        col = layout_col[which * col_stride :].tolist()
        heads = torch.arange(which, H, layouts, device=q.device)
        for row, (first, last) in enumerate(pairwise(crow)):
            mine = positions[row * block : (row + 1) * block]
            if first == last:
                continue
            keys = torch.cat([positions[column * block : (column + 1) * block] for column in col[first:last]])
            k_wide, v_wide = (t[:, heads // (H // H_kv)][:, :, keys].float() for t in (k, v))
            scores = q[:, heads][:, :, mine].float() @ k_wide.mT * scale
            scores = scores.masked_fill(keys > mine[:, None], float("-inf"))
            weights = torch.softmax(scores, dim=-1).nan_to_num(0.0)  # rows without keys
            o[:, which::layouts, row * block : (row + 1) * block] = (weights @ v_wide).to(q.dtype)
    return o


OPERATOR = Definition(inputs=inputs, reference=reference)
