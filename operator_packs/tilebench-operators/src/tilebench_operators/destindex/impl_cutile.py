"""Scatter of token rows in cuTile: one launch moves both parts; a block moves the whole rows of one or a few tokens."""

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel


@ct.kernel
def scatter_kernel(
    nope, rope, dest, out_nope, out_rope,
    TOKENS: ct.Constant[int], BLOCK: ct.Constant[int], ROPE_BLOCK: ct.Constant[int],
):  # fmt: skip
    """Rows of nope [T, width] and rope [T, rope_width] to rows dest [T]; BLOCK >= width, ROPE_BLOCK >= rope_width.

    All loads stand before the stores, so that they are in flight together.
    """
    rows = ()
    for i in ct.static_iter(range(TOKENS)):
        # The last block may move the last token more than once, always to the same place.
        token = ct.minimum(ct.bid(0) * TOKENS + i, dest.shape[0] - 1)
        row = ct.load(nope, (token, 0), (1, BLOCK), allow_tma=False)
        rope_row = ct.load(rope, (token, 0), (1, ROPE_BLOCK), allow_tma=False)
        rows += ((ct.load(dest, (token,), ()), row, rope_row),)
    for i in ct.static_iter(range(TOKENS)):
        target, row, rope_row = rows[i]
        ct.store(out_nope, (target, 0), row, allow_tma=False)
        ct.store(out_rope, (target, 0), rope_row, allow_tma=False)


def run(
    kv_nope: torch.Tensor, kv_rope: torch.Tensor, dest: torch.Tensor, *, TOKENS: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return out_nope and out_rope, shaped as kv_nope [T, heads, head_dim] and kv_rope [T, 1, rope_dim]."""
    out_nope, out_rope = torch.empty_like(kv_nope), torch.empty_like(kv_rope)
    count = dest.numel()
    flat = [t.view(count, -1) for t in (kv_nope, kv_rope, out_nope, out_rope)]
    BLOCK, ROPE_BLOCK = (1 << (t.shape[1] - 1).bit_length() for t in flat[:2])
    arguments = (flat[0], flat[1], dest, flat[2], flat[3], TOKENS, BLOCK, ROPE_BLOCK)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(count, TOKENS),), scatter_kernel, arguments)
    return out_nope, out_rope


def default(case: Case) -> Config:
    return {"TOKENS": 2 if case.dtype_size == 1 else 1}  # at least 3 KB per block


def space(case: Case) -> list[Config]:
    return [{"TOKENS": tokens} for tokens in (1, 2, 4)]


KERNEL = Kernel(run=run, default=default, space=space)
