"""Block-sparse causal attention in PyTorch: dense attention with a mask that is built from the CSR arrays.

Eager PyTorch has no attention over a list of blocks (`flex_attention` has one when compiled), and how many blocks a row
lists is known to the device only, so a gathering expression could not have fixed shapes. The mask is part of the call.
"""

import torch
from tilebench_core import Kernel
from torch.nn import functional


def block_mask(layout_crow: torch.Tensor, layout_col: torch.Tensor, rows: int) -> torch.Tensor:
    """Return the listed blocks [rows, rows], bool, of one layout: crow [rows + 1], col [rows·rows]."""
    entries = torch.arange(rows * rows, dtype=torch.int32, device=layout_crow.device)
    row = torch.searchsorted(layout_crow[1:], entries, right=True)  # `rows` for the padding, which is cut off
    mask = torch.zeros([(rows + 1) * rows], dtype=torch.bool, device=layout_crow.device)
    return mask.scatter_(0, row * rows + layout_col, True).view(rows + 1, rows)[:rows]


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout_crow: torch.Tensor, layout_col: torch.Tensor,
    layout_crow_stride: int, layout_col_stride: int, num_layout: int, softmax_scale: float, num_heads: int,
    num_kv_heads: int, M: int, BLOCK_M: int, EVEN_M: bool, BLOCK_N: int, EVEN_N: bool, BLOCK_D: int,
    NUM_D_BLOCKS: int,
) -> torch.Tensor:  # fmt: skip
    """Return o [B, H, M, D]; q [B, H, M, D], k and v [B, H_kv, M, D]."""
    rows = layout_crow_stride - 1
    crows, cols = layout_crow.view(num_layout, rows + 1), layout_col.view(num_layout, layout_col_stride)
    blocks = torch.stack([block_mask(crows[layout], cols[layout], rows) for layout in range(num_layout)])
    mask = blocks.repeat_interleave(BLOCK_M, dim=1)[:, :M].repeat_interleave(BLOCK_N, dim=2)[:, :, :M].tril()
    if num_layout > 1:
        mask = mask.repeat(-(-num_heads // num_layout), 1, 1)[:num_heads]
    group = num_heads // num_kv_heads
    o = functional.scaled_dot_product_attention(
        q, k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1), mask[None], scale=softmax_scale
    )
    empty = ~mask.any(dim=-1, keepdim=True)  # what attention without any key gives depends on the backend
    return o.masked_fill(empty, 0.0).contiguous()


KERNEL = Kernel(run=run)
