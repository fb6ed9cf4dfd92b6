"""Matrix copy in TileLang: the matrix is contiguous, so it is copied as one long vector, a block per block of threads."""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel


@tilelang.jit
def copy_kernel(dtype: torch.dtype, BLOCK: int, threads: int):
    """Copy n elements."""
    n = T.dynamic("n")

    @T.prim_func
    def copy(a: T.Tensor((n,), dtype), b: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, BLOCK), threads=threads) as block:
            start = block * BLOCK
            # Only the last block tests its bounds: a test per element would keep the loads from being 16 bytes wide.
            if start + BLOCK <= n:
                for i in T.Parallel(BLOCK):
                    b[start + i] = a[start + i]
            else:
                for i in T.Parallel(BLOCK):
                    if start + i < n:
                        b[start + i] = a[start + i]

    return copy


def run(a: torch.Tensor, *, BLOCK: int, threads: int) -> torch.Tensor:
    """Return a copy of a [N, N] in its dtype."""
    b = torch.empty_like(a)
    copy_kernel(a.dtype, BLOCK, threads)(a.view(-1), b.view(-1))
    return b


def default(case: Case) -> Config:
    # 16 bytes per thread and load; two loads in flight per thread once that still gives every SM several blocks.
    loads = 2 if case["N"] ** 2 * case.dtype_size >= 8 << 20 else 1
    return {"BLOCK": loads * 2048 // case.dtype_size, "threads": 128}


def space(case: Case) -> list[Config]:
    return [
        {"BLOCK": bytes_ // case.dtype_size, "threads": threads}
        for bytes_ in (2048, 4096, 8192, 16384)
        for threads in (64, 128, 256)
        if bytes_ >= 16 * threads  # a whole vector for every thread
    ]


KERNEL = Kernel(run=run, default=default, space=space)
