"""Interleaving in TileLang: a thread reads 8 bytes of each input and writes the 16 bytes that they make.

If it read 16 bytes of each, neighbouring threads would write 32 bytes apart, and every store would touch twice as many
sectors of memory as it fills.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel


@tilelang.jit
def interleave_kernel(dtype: torch.dtype, BLOCK: int, threads: int):
    """One block of threads writes 2·BLOCK elements of out [2n]."""
    n = T.dynamic("n")
    VEC = 8 // dtype.itemsize

    @T.prim_func
    def interleave(a: T.Tensor((n,), dtype), b: T.Tensor((n,), dtype), out: T.Tensor((2 * n,), dtype)):
        with T.Kernel(T.ceildiv(n, BLOCK), threads=threads) as block:
            start = block * BLOCK
            # Only the last block tests its bounds, element by element.
            if start + BLOCK <= n:
                for vector in T.Parallel(BLOCK // VEC):
                    even = T.alloc_local((VEC,), dtype)
                    odd = T.alloc_local((VEC,), dtype)
                    both = T.alloc_local((2 * VEC,), dtype)
                    for v in T.vectorized(VEC):
                        even[v] = a[start + vector * VEC + v]
                    for v in T.vectorized(VEC):
                        odd[v] = b[start + vector * VEC + v]
                    for v in T.unroll(VEC):
                        both[2 * v] = even[v]
                        both[2 * v + 1] = odd[v]
                    for v in T.vectorized(2 * VEC):
                        out[2 * (start + vector * VEC) + v] = both[v]
            else:
                for i in T.Parallel(BLOCK):
                    if start + i < n:
                        out[2 * (start + i)] = a[start + i]
                        out[2 * (start + i) + 1] = b[start + i]

    return interleave


def run(a: torch.Tensor, b: torch.Tensor, N: int, *, BLOCK: int, threads: int) -> torch.Tensor:
    """Return out [2N] from a [N] and b [N]."""
    out = torch.empty(2 * N, dtype=a.dtype, device=a.device)
    interleave_kernel(a.dtype, BLOCK, threads)(a, b, out)
    return out


def default(case: Case) -> Config:
    return {"BLOCK": 2048 // case.dtype_size, "threads": 128}  # two 8-byte loads of each input per thread


def space(case: Case) -> list[Config]:
    return [
        {"BLOCK": bytes_ // case.dtype_size, "threads": threads}
        for bytes_ in (1024, 2048, 4096, 8192)
        for threads in (64, 128, 256)
        if bytes_ >= 8 * threads  # a whole vector for every thread
    ]


KERNEL = Kernel(run=run, default=default, space=space)
