# operator: bitonic_sort, backend: triton
"""One launch per stage of the network, on a padded copy that a first kernel makes."""

import torch
import triton
import triton.language as tl

BLOCK = 256


@triton.jit
def pad_kernel(x_ptr, work_ptr, n, size, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(work_ptr + i, tl.load(x_ptr + i, mask=i < n, other=float("inf")), mask=i < size)


@triton.jit
def stage_kernel(work_ptr, pairs, k, j, BLOCK: tl.constexpr):
    t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = t < pairs
    low = t // j * (2 * j) + t % j
    a = tl.load(work_ptr + low, mask=mask)
    b = tl.load(work_ptr + low + j, mask=mask)
    swap = (a > b) == ((low & k) == 0)
    tl.store(work_ptr + low, tl.where(swap, b, a), mask=mask)
    tl.store(work_ptr + low + j, tl.where(swap, a, b), mask=mask)


@triton.jit
def copy_kernel(work_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(work_ptr + i, mask=i < n), mask=i < n)


def sort(work):
    size = work.numel()
    k = 2
    while k <= size:
        j = k // 2
        while j > 0:
            stage_kernel[(triton.cdiv(size // 2, BLOCK),)](work, size // 2, k, j, BLOCK=BLOCK)
            j //= 2
        k *= 2


def run(data, N):
    size = triton.next_power_of_2(N)
    work = torch.empty(size, dtype=data.dtype, device=data.device)
    out = torch.empty_like(data)
    pad_kernel[(triton.cdiv(size, BLOCK),)](data, work, N, size, BLOCK=BLOCK)
    sort(work)
    copy_kernel[(triton.cdiv(N, BLOCK),)](work, out, N, BLOCK=BLOCK)
    del work
    return out
