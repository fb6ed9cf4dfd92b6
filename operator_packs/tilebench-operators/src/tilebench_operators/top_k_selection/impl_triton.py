"""Selection of the k largest values in Triton: a bound, a filter, one small sort; three launches, exact for any input.

If every one of B whole blocks has M values at or above a bound, with B·M >= k, then the k-th largest value of all
reaches it too: nothing below the bound can be selected. `bound_kernel` takes the M-th largest value of every block,
`filter_kernel` keeps what reaches the least of them, and `select_kernel` sorts what is left in one program. On N(0, 1)
about 2·k values pass; unlucky data (a sorted array, say) only makes the last launch longer. A short array goes straight
to that launch.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel

SHORT = 4096  # values that one program selects from at once
LOWEST = float("-inf")


@triton.jit
def bound_kernel(x_ptr, bounds_ptr, count_ptr, BLOCK: tl.constexpr, M: tl.constexpr):
    """bounds [blocks]: the M-th largest of each whole block of x. M is a constant because `tl.topk` wants one."""
    block = tl.program_id(0)
    x = tl.load(x_ptr + block * BLOCK + tl.arange(0, BLOCK))
    tl.store(bounds_ptr + block, tl.min(tl.topk(x, M), axis=0))
    if block == 0:
        tl.store(count_ptr, 0)  # for the next launch


@triton.jit
def filter_kernel(x_ptr, bounds_ptr, count_ptr, kept_ptr, n, blocks, BLOCK: tl.constexpr, BOUNDS: tl.constexpr):
    """Append the values of x [n] that reach the least of bounds [blocks] to kept, in any order; count them."""
    others = tl.arange(0, BOUNDS)
    bound = tl.min(tl.load(bounds_ptr + others, mask=others < blocks, other=float("inf")), axis=0)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    keep = (x >= bound) & (offsets < n)
    ranks = tl.cumsum(keep.to(tl.int32), axis=0)
    total = tl.max(ranks, axis=0)
    start = tl.atomic_add(count_ptr, total, sem="relaxed")
    tl.store(kept_ptr + start + ranks - 1, x, mask=keep)


@triton.jit
def select_kernel(
    x_ptr, count_ptr, y_ptr, n, k, lowest, BLOCK: tl.constexpr, K: tl.constexpr, COUNTED: tl.constexpr
):  # fmt: skip
    """One program: y [k], the largest of x [n], or of the first count[0] of them; K is the power of two from k on.

    What passed the filter usually fits one block. If not, the K largest so far are written over the end of the block,
    where the next block begins.
    """
    if COUNTED:
        n = tl.load(count_ptr)
    lanes = tl.arange(0, BLOCK)
    places = tl.arange(0, K)
    for start in range(0, tl.maximum(n, BLOCK) - K, BLOCK - K):
        largest = tl.topk(tl.load(x_ptr + start + lanes, mask=start + lanes < n, other=lowest), K)
        tl.store(y_ptr + places, largest, mask=places < k)
        if COUNTED:
            more = tl.where(start + BLOCK < n, K, 0)
            tl.debug_barrier()  # all of the block has been read
            tl.store(x_ptr + start + BLOCK - K + places, largest, mask=places < more)
            tl.debug_barrier()


def run(x: torch.Tensor, N: int, k: int, *, BLOCK: int, num_warps: int, SELECT_WARPS: int) -> torch.Tensor:
    """Return the k largest of x [N], in descending order."""
    y = torch.empty(k, dtype=x.dtype, device=x.device)
    K = max(2, triton.next_power_of_2(k))
    block = max(SHORT, 2 * K)
    whole = N // BLOCK
    M = max(2, triton.next_power_of_2(triton.cdiv(k, whole))) if whole else BLOCK
    if block >= N or M > BLOCK // 2:
        select_kernel[(1,)](
            x, x, y, N, k, LOWEST, BLOCK=max(2 * K, triton.next_power_of_2(min(N, block))), K=K, COUNTED=False,
            num_warps=SELECT_WARPS,
        )  # fmt: skip
        return y
    bounds = torch.empty(whole, dtype=x.dtype, device=x.device)
    count = torch.empty(1, dtype=torch.int32, device=x.device)
    kept = torch.empty_like(x)  # room for everything: the filter may keep all
    bound_kernel[(whole,)](x, bounds, count, BLOCK=BLOCK, M=M, num_warps=num_warps)
    filter_kernel[(triton.cdiv(N, 2048),)](
        x, bounds, count, kept, N, whole, BLOCK=2048, BOUNDS=triton.next_power_of_2(whole), num_warps=4
    )
    select_kernel[(1,)](kept, count, y, N, k, LOWEST, BLOCK=block, K=K, COUNTED=True, num_warps=SELECT_WARPS)
    return y


def default(case: Case) -> Config:
    # About a block per SM, and blocks large enough that the least of the M-th largest lies near their mean.
    block = min(8192, max(512, triton.next_power_of_2(case["N"]) // 128))
    return {"BLOCK": block, "num_warps": max(2, block // 1024), "SELECT_WARPS": 16 if case["k"] > 128 else 8}


def space(case: Case) -> list[Config]:
    return [
        {"BLOCK": block, "num_warps": warps, "SELECT_WARPS": select}
        for block in (1024, 2048, 4096, 8192)
        for warps in (4, 8)
        for select in (4, 8, 16, 32)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
