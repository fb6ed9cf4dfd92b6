"""Selection of the k largest values in cuTile: a bound, a filter, ranks by counting; one to three launches, exact for any input.

If every one of B groups has M values at or above a bound, with B·M >= k, then so does the k-th largest value of all:
nothing below the bound can be selected. `bound_kernel` takes the M-th largest value of every group, `filter_kernel` keeps
what reaches the least of them, and `rank_kernel` counts for each value that is left how many are larger: its place in the
result. Counting compares all pairs, but all SMs share the work and no step waits for another one, unlike in a sort. On
N(0, 1) a few times k values pass, at most some thousand. A short array goes straight to the last launch; of one that a single
block can hold, `sift_kernel` finds the bound and filters at once. A launch may start while the one before it still runs
(programmatic dependent launch): its blocks are there when they can begin.
"""

import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._cutile_dependent import launch_dependent

NEG_INF = ct.PaddingMode.NEG_INF
SHORT = 4096  # values that are ranked without a filter
MEDIUM = 16384  # values that one block filters
GROUPS_TILE = 4096  # elements of a block of `bound_kernel`
FILTER_TILE = 2048
RANK_BLOCKS = 512  # the host does not know how many values are left


@ct.kernel
def bound_kernel(x, bounds, count, M: ct.Constant[int], GROUPS: ct.Constant[int], SIZE: ct.Constant[int]):
    """bounds [groups]: the M-th largest of each row of x [groups, SIZE], or less if values are equal; M is small."""
    ct.grid_dependency_control_launch_dependents()
    i = ct.bid(0)
    t = ct.load(x, (i, 0), (GROUPS, SIZE), padding_mode=NEG_INF, allow_tma=False)
    for _ in range(M - 1):
        t = ct.where(t == ct.max(t, 1, keepdims=True), -math.inf, t)
    ct.store(bounds, (i,), ct.max(t, 1), allow_tma=False)
    if i == 0:
        ct.store(count, (0,), ct.zeros((1,), ct.int32))  # for the next launch


@ct.kernel
def filter_kernel(x, bounds, count, kept, n, TILE: ct.Constant[int], BOUNDS: ct.Constant[int]):
    """Append the values of x [n] that reach the least of bounds to kept, in any order; count them."""
    ct.grid_dependency_control_launch_dependents()
    i = ct.bid(0)
    ct.grid_dependency_control_wait()
    bound = ct.min(ct.load(bounds, (0,), (BOUNDS,), padding_mode=ct.PaddingMode.POS_INF, allow_tma=False))
    # A thread holds rows of four. It ranks what it keeps of a row by itself, and only the rows' totals are summed up.
    t = ct.load(x, (i,), (TILE,), padding_mode=NEG_INF, allow_tma=False).reshape((TILE // 4, 4))
    places = i * TILE + ct.arange(TILE, dtype=ct.int32).reshape((TILE // 4, 4))
    keep = (t >= bound) & (places < n)
    ranks = ct.cumsum(keep.astype(ct.int32), 1)
    totals = ct.sum(keep.astype(ct.int32), 1)
    ends = ct.cumsum(totals)
    start = ct.atomic_add(count, (0,), ct.max(ends), memory_order=ct.MemoryOrder.RELAXED)
    kept.get_raw_memory().store_offset(start + (ends - totals)[:, None] + ranks - 1, t, mask=keep)


@ct.kernel(num_worker_warps=8)
def sift_kernel(
    x, count, kept, n, groups,
    M: ct.Constant[int], GROUPS: ct.Constant[int], SIZE: ct.Constant[int], WHOLE: ct.Constant[bool],
):  # fmt: skip
    """As `bound_kernel` and `filter_kernel`, for x [n] in one block.

    A group is SIZE neighbouring quads, of which only the largest values count: their M-th largest is its bound. WHOLE:
    there are as many values as the groups have, and no bounds are checked.
    """
    ct.grid_dependency_control_launch_dependents()
    QUADS = GROUPS * SIZE
    if WHOLE:
        t = ct.load(x, (0,), (4 * QUADS,), check_bounds=False, allow_tma=False).reshape((QUADS, 4))
    else:
        t = ct.load(x, (0,), (4 * QUADS,), padding_mode=NEG_INF, allow_tma=False).reshape((QUADS, 4))
    left = ct.max(t, 1).reshape((GROUPS, SIZE))
    for _ in range(M - 1):
        left = ct.where(left == ct.max(left, 1, keepdims=True), -math.inf, left)
    whole = ct.arange(GROUPS, dtype=ct.int32) < groups
    bound = ct.min(ct.where(whole, ct.max(left, 1), math.inf))
    # As in `filter_kernel`, a thread ranks what it keeps of a quad by itself.
    places = ct.arange(4 * QUADS, dtype=ct.int32).reshape((QUADS, 4))
    keep = t >= bound if WHOLE else (t >= bound) & (places < n)
    ranks = ct.cumsum(keep.astype(ct.int32), 1)
    totals = ct.sum(keep.astype(ct.int32), 1)
    ends = ct.cumsum(totals)
    ct.store(count, (0,), ct.max(ends).reshape((1,)), allow_tma=False)
    kept.get_raw_memory().store_offset((ends - totals)[:, None] + ranks - 1, t, mask=keep)


@ct.kernel
def rank_kernel(
    x, count, y, n, k, CHUNK: ct.Constant[int], TURN: ct.Constant[int], COUNTED: ct.Constant[bool]
):  # fmt: skip
    """y [k], the largest of x [n], or of the first count[0] of x; blocks take turns at chunks of CHUNK values.

    Equal values are ranked by their index: for those before the chunk, "not less" instead of "greater" counts. Their
    successors among the fp32 numbers are compared, which is one comparison for all. Infinity's is a NaN, which is not
    less than or equal to anything.
    """
    if COUNTED:
        ct.grid_dependency_control_wait()
    end = ct.load(count, (0,), ()) if COUNTED else n
    memory = x.get_raw_memory()
    lanes = ct.arange(CHUNK, dtype=ct.int32)
    for first in range(ct.bid(0) * CHUNK, end, ct.num_blocks(0) * CHUNK):
        index = first + lanes
        value = memory.load_offset(index, mask=index < end, padding_value=-math.inf)
        equal = (value[None, :] == value[:, None]) & (lanes[None, :] < lanes[:, None])
        rank = ct.sum(equal.astype(ct.int32), 1)
        least = 0
        # One turn, unless unlucky data let much pass; then no more turns than the chunk's largest value needs.
        for start in range(0, end, TURN):
            if least < k:
                place = start + ct.arange(TURN, dtype=ct.int32)
                others = memory.load_offset(place, mask=place < end, padding_value=-math.inf)
                bits = ct.bitcast(others, ct.int32)
                bits = ct.where((bits & 0x7FFFFFFF) == 0, 0, bits)  # not -0
                bits += ct.where(place < first, ct.where(bits < 0, -1, 1), 0)
                others = ct.bitcast(bits, ct.float32)
                larger = ct.where(others[None, :] <= value[:, None], 0.0, 1.0)
                rank += ct.sum(larger, 1).astype(ct.int32)
                if start + TURN < end:
                    least = ct.min(rank)
        y.get_raw_memory().store_offset(rank, value, mask=(index < end) & (rank < k))


def run(x: torch.Tensor, N: int, k: int, *, VALUES: int, CHUNK: int, TURN: int) -> torch.Tensor:
    """Return the k largest of x [N], in descending order; about VALUES per group are looked for."""
    stream = torch.cuda.current_stream()
    y = torch.empty(k, dtype=x.dtype, device=x.device)
    count = torch.empty(1, dtype=torch.int32, device=x.device)
    if N <= SHORT:
        ct.launch(stream, (ct.cdiv(N, CHUNK),), rank_kernel, (x, count, y, N, k, CHUNK, TURN, False))
        return y
    kept = torch.empty_like(x)  # room for everything: the filter may keep all
    if N <= MEDIUM:
        GROUPS = 128 if k <= 128 else 256
        SIZE = MEDIUM // GROUPS // 4
        groups = N // (4 * SIZE)
        M, whole = ct.cdiv(k, groups), N == MEDIUM
        ct.launch(stream, (1,), sift_kernel, (x, count, kept, N, groups, M, GROUPS, SIZE, whole))
        launch_dependent(stream, (RANK_BLOCKS,), rank_kernel, (kept, count, y, N, k, CHUNK, TURN, True))
        return y
    SIZE = min(GROUPS_TILE, max(16, 1 << (N * VALUES // k).bit_length() - 1))
    groups = N // SIZE
    bounds = torch.empty(groups, dtype=x.dtype, device=x.device)
    GROUPS = GROUPS_TILE // SIZE
    M = ct.cdiv(k, groups)
    whole = x[: groups * SIZE].view(groups, SIZE)
    ct.launch(stream, (ct.cdiv(groups, GROUPS),), bound_kernel, (whole, bounds, count, M, GROUPS, SIZE))
    BOUNDS = 1 << (groups - 1).bit_length()
    arguments = (x, bounds, count, kept, N, FILTER_TILE, BOUNDS)
    launch_dependent(stream, (ct.cdiv(N, FILTER_TILE),), filter_kernel, arguments)
    launch_dependent(stream, (RANK_BLOCKS,), rank_kernel, (kept, count, y, N, k, CHUNK, TURN, True))
    return y


def default(case: Case) -> Config:
    # A turn holds what the filter keeps, more or less: of 256 groups the least maximum leaves some 1,600 values.
    if case["k"] > 256 or case["N"] <= SHORT:
        return {"VALUES": 4, "CHUNK": 8, "TURN": 4096}
    if case["N"] <= 1 << 18 and (case["k"] < 256 or case["N"] > MEDIUM):
        return {"VALUES": 4, "CHUNK": 4, "TURN": 1024}
    return {"VALUES": 4, "CHUNK": 8, "TURN": 2048}


def space(case: Case) -> list[Config]:
    return [
        {"VALUES": values, "CHUNK": chunk, "TURN": turn}
        for values in (2, 4, 8)
        for chunk in (4, 8, 16)
        for turn in (1024, 2048, 4096)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
