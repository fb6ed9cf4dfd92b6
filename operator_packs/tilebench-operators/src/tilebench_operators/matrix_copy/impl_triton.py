"""Matrix copy in Triton: the matrix is contiguous, so it is copied as one long vector, a block per program."""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def copy_kernel(a_ptr, b_ptr, n, BLOCK: tl.constexpr):
    """Copy BLOCK of n elements."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(b_ptr + offsets, tl.load(a_ptr + offsets, mask=mask), mask=mask)


def run(a: torch.Tensor, *, BLOCK: int, num_warps: int) -> torch.Tensor:
    """Return a copy of a [N, N] in its dtype."""
    b = torch.empty_like(a)
    n = a.numel()
    copy_kernel[(triton.cdiv(n, BLOCK),)](a, b, n, BLOCK=BLOCK, num_warps=num_warps)
    return b


def default(case: Case) -> Config:
    # 16 bytes per thread and load; two loads in flight per thread once that still gives every SM several programs.
    loads = 2 if case["N"] ** 2 * case.dtype_size >= 8 << 20 else 1
    return {"BLOCK": loads * 2048 // case.dtype_size, "num_warps": 4}


def space(case: Case) -> list[Config]:
    return [
        {"BLOCK": bytes_ // case.dtype_size, "num_warps": warps}
        for bytes_ in (2048, 4096, 8192, 16384)
        for warps in (2, 4, 8)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
