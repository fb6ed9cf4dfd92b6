"""Rotary position embedding in TileLang: one block of threads rotates a group of heads at one position.

The row of cos and sin is shared by the group's heads, by default all of them. Both halves of a head are loaded before
either is written, to a new tensor: q is read once, and nothing else is moved.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

MAX_HEADS = 32  # a group of more would need too many registers


# As seen in the generated code: where an address takes bits of the thread's index apart, as that of a tile of several
# rows does, nvcc splits 16-byte stores into 4-byte ones. This setting makes every wide access one instruction.
@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_ENABLE_LOWER_LDGSTG: True})
def rope_kernel(dtype: torch.dtype, half: int, HEADS: int, threads: int):
    """One block, HEADS heads of one token: q, y [B, S, H, 2, half]; cos, sin [S, half].

    Half the head's dimension is a constant of the compiled kernel: a model has one, and rows are known to be aligned.
    """
    B, S, H = T.dynamic("B"), T.dynamic("S"), T.dynamic("H")

    @T.prim_func
    def rope(
        q: T.Tensor((B, S, H, 2, half), dtype),
        cos: T.Tensor((S, half), dtype),
        sin: T.Tensor((S, half), dtype),
        y: T.Tensor((B, S, H, 2, half), dtype),
    ):
        with T.Kernel(S, B, T.ceildiv(H, HEADS), threads=threads) as (position, b, group):
            first = T.alloc_fragment((HEADS, half), dtype)
            second = T.alloc_fragment((HEADS, half), dtype)
            c = T.alloc_fragment((half,), dtype)
            s = T.alloc_fragment((half,), dtype)
            head = group * HEADS
            for i, j in T.Parallel(HEADS, half):
                if head + i < H:
                    first[i, j] = q[b, position, head + i, 0, j]
                    second[i, j] = q[b, position, head + i, 1, j]
            for j in T.Parallel(half):
                c[j] = cos[position, j]
                s[j] = sin[position, j]
            for i, j in T.Parallel(HEADS, half):
                if head + i < H:
                    y[b, position, head + i, 0, j] = T.cast(
                        T.cast(first[i, j], T.float32) * T.cast(c[j], T.float32)
                        - T.cast(second[i, j], T.float32) * T.cast(s[j], T.float32),
                        dtype,
                    )
            for i, j in T.Parallel(HEADS, half):
                if head + i < H:
                    y[b, position, head + i, 1, j] = T.cast(
                        T.cast(second[i, j], T.float32) * T.cast(c[j], T.float32)
                        + T.cast(first[i, j], T.float32) * T.cast(s[j], T.float32),
                        dtype,
                    )

    return rope


def run(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, HEADS: int, threads: int) -> torch.Tensor:
    """Return y [B, S, H, d] of q [B, S, H, d], cos [S, d/2] and sin [S, d/2], all of one dtype."""
    B, S, H, d = q.shape
    y = torch.empty_like(q)
    halves = (B, S, H, 2, d // 2)
    rope_kernel(q.dtype, d // 2, HEADS, threads)(q.view(halves), cos, sin, y.view(halves))
    return y


def default(case: Case) -> Config:
    # 32 heads of 128: four 16-byte vectors of q per thread with 128 threads in fp16, with 256 in fp32.
    return {"HEADS": min(MAX_HEADS, 1 << (case["H"] - 1).bit_length()), "threads": 64 * case.dtype_size}


def space(case: Case) -> list[Config]:
    return [{"HEADS": heads, "threads": threads} for heads in (4, 8, 16, 32) for threads in (32, 64, 128, 256)]


KERNEL = Kernel(run=run, default=default, space=space)
