"""Reversal of an array in TileLang: 16-byte vectors are read in reverse order and flipped inside each thread.

Reading single elements backwards would leave 1- and 2-byte types with 1- and 2-byte accesses. A vector's mirror image is
one aligned vector too if the length is a multiple of it; other lengths take narrower vectors.
"""

import math

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel


@tilelang.jit
def reverse_kernel(dtype: torch.dtype, BLOCK: int, VEC: int, threads: int):
    """One block of threads writes BLOCK elements of out [n]; VEC divides n."""
    n = T.dynamic("n")

    @T.prim_func
    def reverse(x: T.Tensor((n,), dtype), out: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, BLOCK), threads=threads) as block:
            T.assume(n % VEC == 0)
            vectors = T.alloc_fragment((BLOCK // VEC, VEC), dtype)
            start = block * BLOCK
            # The mirror image of row r of this block is the row that starts at n - start - (r + 1)·VEC.
            for r, v in T.Parallel(BLOCK // VEC, VEC):
                if start + r * VEC < n:
                    vectors[r, v] = x[n - start - (r + 1) * VEC + v]
            for r in T.Parallel(BLOCK // VEC):
                flipped = T.alloc_local((VEC,), dtype)
                for v in T.unroll(VEC):
                    flipped[v] = vectors[r, VEC - 1 - v]
                if start + r * VEC < n:
                    for v in T.vectorized(VEC):
                        out[start + r * VEC + v] = flipped[v]

    return reverse


def run(x: torch.Tensor, *, BLOCK: int, threads: int) -> torch.Tensor:
    """Return x [n] in reverse order."""
    out = torch.empty_like(x)
    VEC = math.gcd(x.numel(), 16 // x.element_size())
    reverse_kernel(x.dtype, BLOCK, VEC, threads)(x, out)
    return out


def default(case: Case) -> Config:
    return {"BLOCK": 4096 // case.dtype_size, "threads": 128}  # two vectors per thread


def space(case: Case) -> list[Config]:
    return [
        {"BLOCK": bytes_ // case.dtype_size, "threads": threads}
        for bytes_ in (2048, 4096, 8192, 16384)
        for threads in (64, 128, 256)
        if bytes_ >= 16 * threads  # a whole vector for every thread
    ]


KERNEL = Kernel(run=run, default=default, space=space)
