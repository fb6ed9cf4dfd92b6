"""Selection of the k largest values in Triton: a bound, a filter, ranks by counting; one to three launches, exact for any input.

If every one of B groups has M values at or above a bound, with B·M >= k, then so does the k-th largest value of all:
nothing below the bound can be selected. `bound_kernel` takes the M-th largest value of every group, `filter_kernel` keeps
what reaches the least of them, and `rank_kernel` counts for each value that is left how many are larger: its place in the
result. Counting compares all pairs, but all SMs share the work and no step waits for another one, unlike in a sort. On
N(0, 1) a few times k values pass, at most some thousand. A short array goes straight to the last launch; of one that a single
program can hold, `sift_kernel` finds the bound and filters at once. A launch may start while the one before it still runs
(programmatic dependent launch): the filter has loaded x when the bounds are ready.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel

from tilebench_operators._triton_dependent import dependent, start_next, wait_for_previous

SHORT = 4096  # values that are ranked without a filter
MEDIUM = 16384  # values that one program filters
TILE = 4096  # elements of a program of `bound_kernel` and `filter_kernel`
RANK_PROGRAMS = 512  # the host does not know how many values are left
LOWEST = float("-inf")


@triton.jit(do_not_specialize=["groups", "M"])
def bound_kernel(x_ptr, bounds_ptr, count_ptr, groups, M, GROUPS: tl.constexpr, SIZE: tl.constexpr):
    """bounds [groups]: the M-th largest of each group of SIZE values of x, or less if values are equal; M is small.

    A group takes every groups-th run of 16 neighbours, so that a sorted array has groups of equal standing.
    """
    start_next()
    group = tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)
    element = tl.arange(0, SIZE)
    offsets = group[:, None] * 16 + (element // 16 * (groups * 16) + element % 16)[None, :]
    x = tl.load(x_ptr + offsets, mask=(group < groups)[:, None], other=float("-inf"))
    for _ in range(M - 1):
        x = tl.where(x == tl.max(x, 1, keep_dims=True), float("-inf"), x)
    tl.store(bounds_ptr + group, tl.max(x, 1), mask=group < groups)
    if tl.program_id(0) == 0:
        tl.store(count_ptr, 0)  # for the next launch


@triton.jit(do_not_specialize=["groups"])
def filter_kernel(x_ptr, bounds_ptr, count_ptr, kept_ptr, n, groups, SIZE: tl.constexpr, BOUNDS: tl.constexpr):
    """Append the values of x [n] that reach the least of bounds [groups] to kept, in any order; count them."""
    start_next()
    # A thread loads rows of four. It ranks what it keeps of a row by itself, and only the rows' totals are summed up.
    offsets = tl.program_id(0) * SIZE + tl.arange(0, SIZE // 4)[:, None] * 4 + tl.arange(0, 4)[None, :]
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    wait_for_previous()
    others = tl.arange(0, BOUNDS)
    bound = tl.min(tl.load(bounds_ptr + others, mask=others < groups, other=float("inf")), axis=0)
    keep = (x >= bound) & (offsets < n)
    ranks = tl.cumsum(keep.to(tl.int32), axis=1)
    totals = tl.sum(keep.to(tl.int32), axis=1)
    ends = tl.cumsum(totals, axis=0)
    start = tl.atomic_add(count_ptr, tl.max(ends, axis=0), sem="relaxed")
    tl.store(kept_ptr + start + (ends - totals)[:, None] + ranks - 1, x, mask=keep)


@triton.jit(do_not_specialize=["groups", "M"])
def sift_kernel(x_ptr, count_ptr, kept_ptr, n, groups, M, GROUPS: tl.constexpr, SIZE: tl.constexpr):
    """As `bound_kernel` and `filter_kernel`, for x [n] in one program.

    A group is SIZE neighbouring quads, of which only the largest values count: their M-th largest is its bound.
    """
    start_next()
    offsets = tl.arange(0, GROUPS * SIZE)[:, None] * 4 + tl.arange(0, 4)[None, :]
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=float("-inf"))
    left = tl.max(x, 1).reshape(GROUPS, SIZE)
    for _ in range(M - 1):
        left = tl.where(left == tl.max(left, 1, keep_dims=True), float("-inf"), left)
    bound = tl.min(tl.where(tl.arange(0, GROUPS) < groups, tl.max(left, 1), float("inf")), axis=0)
    # As in `filter_kernel`, a thread ranks what it keeps of a quad by itself.
    keep = (x >= bound) & (offsets < n)
    ranks = tl.cumsum(keep.to(tl.int32), axis=1)
    totals = tl.sum(keep.to(tl.int32), axis=1)
    ends = tl.cumsum(totals, axis=0)
    tl.store(count_ptr, tl.max(ends, axis=0))
    tl.store(kept_ptr + (ends - totals)[:, None] + ranks - 1, x, mask=keep)


@triton.jit(do_not_specialize=["k"])
def rank_kernel(
    x_ptr, count_ptr, y_ptr, n, k, lowest, CHUNK: tl.constexpr, TURN: tl.constexpr, COUNTED: tl.constexpr
):  # fmt: skip
    """y [k], the largest of x [n], or of the first count[0] of x [n + TURN]; programs take turns at chunks of values.

    Equal values are ranked by their index: for those before the chunk, "not less" instead of "greater" counts. Their
    successors among the fp32 numbers are compared, which is one comparison for all. Infinity's is a NaN, which is not
    less than or equal to anything.
    """
    if COUNTED:
        wait_for_previous()
        n = tl.load(count_ptr)
    for first in range(tl.program_id(0) * CHUNK, n, tl.num_programs(0) * CHUNK):
        index = first + tl.arange(0, CHUNK)
        value = tl.load(x_ptr + index, mask=index < n, other=lowest)
        before = first + tl.arange(0, CHUNK)[None, :]
        neighbour = tl.load(x_ptr + before, mask=before < n, other=lowest)
        equal = (neighbour == value[:, None]) & (before < index[:, None])
        rank = tl.sum(equal.to(tl.int32), 1)
        start = 0
        least = 0
        # One turn, unless unlucky data let much pass; then no more turns than the chunk's largest value needs.
        while (start < n) & (least < k):
            place = start + tl.arange(0, TURN)[None, :]
            # The buffer goes on behind the values: loads without a mask are 16 bytes wide.
            x = tl.load(x_ptr + place) if COUNTED else tl.load(x_ptr + place, mask=place < n, other=lowest)
            x = tl.where(place < n, x, lowest) + 0.0  # not -0
            bits = x.to(tl.int32, bitcast=True)
            bits += tl.where(place < first, 1 - 2 * (bits < 0).to(tl.int32), 0)
            larger = tl.where(bits.to(tl.float32, bitcast=True) <= value[:, None], 0.0, 1.0)
            rank += tl.sum(larger, 1).to(tl.int32)
            start += TURN
            if start < n:
                least = tl.min(rank)
        tl.store(y_ptr + rank, value, mask=(index < n) & (rank < k))


def run(x: torch.Tensor, N: int, k: int, *, VALUES: int, CHUNK: int, TURN: int, num_warps: int) -> torch.Tensor:
    """Return the k largest of x [N], in descending order; about VALUES per group are looked for."""
    y = torch.empty(k, dtype=x.dtype, device=x.device)
    common = {"CHUNK": CHUNK, "TURN": TURN, "num_warps": num_warps}
    if N <= SHORT:
        rank_kernel[(triton.cdiv(N, CHUNK),)](x, x, y, N, k, LOWEST, COUNTED=False, **common)
        return y
    count = torch.empty(1, dtype=torch.int32, device=x.device)
    kept = torch.empty(N + TURN, dtype=x.dtype, device=x.device)  # room for everything: the filter may keep all
    if N <= MEDIUM:
        GROUPS = 128 if k <= 128 else 256  # 32 or 16 quads are a warp's or less: their maximum takes no barrier
        SIZE = MEDIUM // GROUPS // 4
        groups = N // (4 * SIZE)
        sift_kernel[(1,)](x, count, kept, N, groups, triton.cdiv(k, groups), GROUPS=GROUPS, SIZE=SIZE, num_warps=16)
        rank_kernel[(RANK_PROGRAMS,)](kept, count, y, N, k, LOWEST, COUNTED=True, **common, **dependent())
        return y
    SIZE = min(TILE, max(16, 1 << (N * VALUES // k).bit_length() - 1))
    groups = N // SIZE
    bounds = torch.empty(groups, dtype=x.dtype, device=x.device)
    GROUPS, BOUNDS = TILE // SIZE, triton.next_power_of_2(groups)
    M = triton.cdiv(k, groups)
    bound_kernel[(triton.cdiv(groups, GROUPS),)](x, bounds, count, groups, M, GROUPS=GROUPS, SIZE=SIZE, num_warps=8)
    filter_kernel[(triton.cdiv(N, TILE),)](
        x, bounds, count, kept, N, groups, SIZE=TILE, BOUNDS=BOUNDS, num_warps=8, **dependent()
    )
    rank_kernel[(RANK_PROGRAMS,)](kept, count, y, N, k, LOWEST, COUNTED=True, **common, **dependent())
    return y


def default(case: Case) -> Config:
    # A turn holds what the filter keeps, more or less: of 256 groups the least maximum leaves some 1,600 values.
    if case["k"] > 256 or case["N"] <= SHORT:
        return {"VALUES": 4, "CHUNK": 8, "TURN": 4096, "num_warps": 4}
    if case["N"] <= 1 << 18 and (case["k"] < 256 or case["N"] > MEDIUM):
        return {"VALUES": 4, "CHUNK": 4, "TURN": 1024, "num_warps": 4}
    return {"VALUES": 4, "CHUNK": 8, "TURN": 2048, "num_warps": 4}


def space(case: Case) -> list[Config]:
    return [
        {"VALUES": values, "CHUNK": chunk, "TURN": turn, "num_warps": warps}
        for values in (2, 4, 8)
        for chunk, warps in ((4, 4), (8, 4), (8, 8), (16, 8))
        for turn in (1024, 2048, 4096)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
