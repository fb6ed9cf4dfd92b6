"""Selection of the k largest values in cuTile: a bound, a filter, one small sort; three launches, exact for any input.

If every one of B whole groups has M values at or above a bound, with B·M >= k, then so does the k-th largest value of
all: nothing below the bound can be selected. `bound_kernel` takes the M-th largest value of every group, `filter_kernel`
keeps what reaches the least of them, and `select_kernel` sorts what is left in one block. On N(0, 1) a few times k values
pass; unlucky data (a sorted array, say) only makes the last launch longer. A short array goes straight to that launch.
"""

import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Device, Kernel

from tilebench_operators.bitonic_sort.impl_cutile import ROWS, regroup, sort_rows

NEG_INF = ct.PaddingMode.NEG_INF
GROUPS_TILE = 4096  # elements of a block of `bound_kernel`
FILTER_TILE = 2048
SLICE = 12  # index bits in a tile of `select_kernel`


@ct.kernel
def bound_kernel(x, bounds, count, M: ct.Constant[int], GROUPS: ct.Constant[int], SIZE: ct.Constant[int]):
    """bounds [groups]: the M-th largest of each row of x [groups, SIZE], or less if values are equal; M is small."""
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
    i = ct.bid(0)
    bound = ct.min(ct.load(bounds, (0,), (BOUNDS,), padding_mode=ct.PaddingMode.POS_INF, allow_tma=False))
    t = ct.load(x, (i,), (TILE,), padding_mode=NEG_INF, allow_tma=False)
    keep = (t >= bound) & (i * TILE + ct.arange(TILE, dtype=ct.int32) < n)
    ranks = ct.cumsum(keep.astype(ct.int32))
    start = ct.atomic_add(count, (0,), ct.max(ranks), memory_order=ct.MemoryOrder.RELAXED)
    kept.get_raw_memory().store_offset(start + ranks - 1, t, mask=keep)


def load_rows(x, start, n, C: int):
    """Half the rows of a tile: x [n] from `start` on, continued with -inf."""
    rows = ()
    for r in ct.static_iter(range(ROWS // 2)):
        places = start + r * C + ct.arange(C, dtype=ct.int32)
        rows += (x.get_raw_memory().load_offset(places, mask=places < n, padding_value=-math.inf),)
    return rows


@ct.kernel
def select_kernel(x, count, y, n, k, SLICE: ct.Constant[int], COUNTED: ct.Constant[bool]):
    """One block: y [k], the largest of x [n], or of the first count[0] of them; k <= HALF.

    A step sorts the HALF largest so far together with HALF new values. The sorted tile's upper half goes on.
    """
    HALF = 1 << (SLICE - 1)
    C = 2 * HALF // ROWS
    end = ct.load(count, (0,), ()) if COUNTED else n
    largest = load_rows(x, 0, end, C)
    for start in range(HALF, ct.maximum(end, HALF + 1), HALF):
        rows = sort_rows(load_rows(x, start, end, C) + largest, SLICE)
        largest = regroup(rows, 0, SLICE - 4)[ROWS // 2 :]  # the highest four bits of the index are the row
    for r in ct.static_iter(range(ROWS // 2)):
        places = HALF - 1 - r * C - ct.arange(C, dtype=ct.int32)  # descending
        y.get_raw_memory().store_offset(places, largest[r], mask=places < k)


def run(x: torch.Tensor, N: int, k: int, *, VALUES: int) -> torch.Tensor:
    """Return the k largest of x [N], in descending order; about VALUES per group are looked for."""
    stream = torch.cuda.current_stream()
    y = torch.empty(k, dtype=x.dtype, device=x.device)
    count = torch.empty(1, dtype=torch.int32, device=x.device)
    if N <= 1 << SLICE:
        ct.launch(stream, (1,), select_kernel, (x, count, y, N, k, SLICE, False))
        return y
    SIZE = min(GROUPS_TILE, max(4 * VALUES, 1 << (N * VALUES // k).bit_length() - 1))
    groups = N // SIZE
    bounds = torch.empty(groups, dtype=x.dtype, device=x.device)
    kept = torch.empty_like(x)  # room for everything: the filter may keep all
    GROUPS = GROUPS_TILE // SIZE
    M = ct.cdiv(k, groups)
    whole = x[: groups * SIZE].view(groups, SIZE)
    ct.launch(stream, (ct.cdiv(groups, GROUPS),), bound_kernel, (whole, bounds, count, M, GROUPS, SIZE))
    BOUNDS = 1 << (groups - 1).bit_length()
    arguments = (x, bounds, count, kept, N, FILTER_TILE, BOUNDS)
    ct.launch(stream, (ct.cdiv(N, FILTER_TILE),), filter_kernel, arguments)
    ct.launch(stream, (1,), select_kernel, (kept, count, y, N, k, SLICE, True))
    return y


def default(case: Case) -> Config:
    return {"VALUES": 4}


def space(case: Case) -> list[Config]:
    return [{"VALUES": values} for values in (1, 2, 4, 8)]


def unsupported(case: Case, device: Device) -> str | None:
    limit = 1 << (SLICE - 1)
    return f"the last kernel keeps at most {limit} values on chip" if case["k"] > limit else None


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
