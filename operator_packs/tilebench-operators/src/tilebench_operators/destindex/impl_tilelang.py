"""Scatter of token rows in TileLang: one launch moves both parts; a block moves a slice of the rows of a few tokens."""

import math

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel


# As seen in the generated code: where an address takes bits of the thread's index apart, as that of a tile of several
# rows does, nvcc splits 16-byte stores into 4-byte ones. This setting makes every wide access one instruction.
@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_ENABLE_LOWER_LDGSTG: True})
def scatter_kernel(dtype: torch.dtype, TOKENS: int, BLOCK: int, ROPE_BLOCK: int, VEC: int, threads: int):
    """Block (j, i): BLOCK columns of TOKENS rows of nope [count, width]; j = 0 also moves rope [count, rope_width].

    ROPE_BLOCK >= rope_width; VEC divides both widths.
    """
    count, width, rope_width = T.dynamic("count"), T.dynamic("width"), T.dynamic("rope_width")

    @T.prim_func
    def scatter(
        nope: T.Tensor((count, width), dtype),
        rope: T.Tensor((count, rope_width), dtype),
        dest: T.Tensor((count,), T.int64),
        out_nope: T.Tensor((count, width), dtype),
        out_rope: T.Tensor((count, rope_width), dtype),
    ):
        with T.Kernel(T.ceildiv(width, BLOCK), T.ceildiv(count, TOKENS), threads=threads) as (column, row):
            T.assume(width % VEC == 0)  # so that every row starts at a multiple of VEC, and accesses are VEC wide
            T.assume(rope_width % VEC == 0)
            values = T.alloc_fragment((TOKENS, BLOCK), dtype)
            targets = T.alloc_fragment((TOKENS,), T.int64)
            rope_values = T.alloc_fragment((TOKENS, ROPE_BLOCK), dtype)
            rope_targets = T.alloc_fragment((TOKENS,), T.int64)
            token, left = row * TOKENS, column * BLOCK
            # All loads stand before the stores, so that they are in flight together.
            for i in T.Parallel(TOKENS):
                if token + i < count:
                    targets[i] = dest[token + i]
            for i, j in T.Parallel(TOKENS, BLOCK):
                if token + i < count and left + j < width:
                    values[i, j] = nope[token + i, left + j]
            if column == 0:
                for i in T.Parallel(TOKENS):
                    if token + i < count:
                        rope_targets[i] = dest[token + i]
                for i, j in T.Parallel(TOKENS, ROPE_BLOCK):
                    if token + i < count and j < rope_width:
                        rope_values[i, j] = rope[token + i, j]
            for i, j in T.Parallel(TOKENS, BLOCK):
                if token + i < count and left + j < width:
                    out_nope[targets[i], left + j] = values[i, j]
            if column == 0:
                for i, j in T.Parallel(TOKENS, ROPE_BLOCK):
                    if token + i < count and j < rope_width:
                        out_rope[rope_targets[i], j] = rope_values[i, j]

    return scatter


def run(
    kv_nope: torch.Tensor, kv_rope: torch.Tensor, dest: torch.Tensor, *, TOKENS: int, BLOCK: int, threads: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return out_nope and out_rope, shaped as kv_nope [T, heads, head_dim] and kv_rope [T, 1, rope_dim]."""
    out_nope, out_rope = torch.empty_like(kv_nope), torch.empty_like(kv_rope)
    count = dest.numel()
    nope, rope, new_nope, new_rope = (t.view(count, -1) for t in (kv_nope, kv_rope, out_nope, out_rope))
    width, rope_width = nope.shape[1], rope.shape[1]
    VEC = math.gcd(width, rope_width, 16 // kv_nope.element_size())
    ROPE_BLOCK = 1 << (rope_width - 1).bit_length()
    kernel = scatter_kernel(kv_nope.dtype, TOKENS, BLOCK, ROPE_BLOCK, VEC, threads)
    kernel(nope, rope, dest, new_nope, new_rope)
    return out_nope, out_rope


def default(case: Case) -> Config:
    # 512 divides the 1,536 elements of a row; 8 KB per block are four 16-byte loads of 128 threads.
    return {"TOKENS": 16 // case.dtype_size, "BLOCK": 512, "threads": 128}


def space(case: Case) -> list[Config]:
    return [
        {"TOKENS": tokens, "BLOCK": block, "threads": threads}
        for block in (256, 512)
        for tokens in (2, 4, 8, 16, 32)
        for threads in (64, 128, 256)
        if max(2048, 16 * threads) <= tokens * block * case.dtype_size <= 16384
    ]


KERNEL = Kernel(run=run, default=default, space=space)
