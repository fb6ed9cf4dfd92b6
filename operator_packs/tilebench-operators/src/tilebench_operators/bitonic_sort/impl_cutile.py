"""Bitonic sort in cuTile: the whole network in a few launches, every comparison between two registers of one thread.

Merge K joins two sorted runs of 2^(K-1) elements: its first stage compares place i of the first run with place i of the
second one read backwards, the next ones partners at distance 2^(K-2), ..., 2, 1. (This is the network's ascending form: it
equals the form with alternating directions up to the order in which every second run is kept. The smaller value always
moves to the lower place, so the padding above N, infinity, stays where it is.)

- `sort_slices` runs merges 1 to SLICE on chip, a slice of 2^SLICE elements per block.
- `cross` runs up to STAGES stages at distances beyond a slice in one pass.
- `merge_slices` runs the last SLICE stages of a merge on chip.

A block holds its elements as a tuple of rows, tiles of C elements each. Equal places of all rows are in the same thread,
so an exchange of two rows is a minimum and a maximum without any other thread. `regroup` makes other bits of the index
the row; the compiler then moves the elements between the threads, through shared memory, once for four stages.
"""

import functools
import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

ROWS = 16  # four bits of the index


def exchange(rows, BIT: int, DOWN: bool):
    """One stage: rows that differ in bit BIT of their index are put in order, the smaller value first, or last if DOWN."""
    result = ()
    for r in ct.static_iter(range(len(rows))):
        a, b = rows[r], rows[r ^ (1 << BIT)]
        if ((r >> BIT) % 2 == 0) != DOWN:
            result += (ct.minimum(a, b),)
        else:
            result += (ct.maximum(a, b),)
    return result


def exchange_all(rows, FROM: int, TO: int, DOWN: bool = False):
    """The stages of row bits FROM - 1, ..., TO."""
    for step in ct.static_iter(range(FROM - TO)):
        rows = exchange(rows, FROM - 1 - step, DOWN)
    return rows


def stacked(rows):
    """The tile [C, 16] whose columns are 16 rows [C]."""
    tiles = ()
    for r in ct.static_iter(range(ROWS)):
        tiles += (rows[r][:, None],)
    for level in ct.static_iter(range(4)):
        pairs = ()
        for pair in ct.static_iter(range(ROWS >> (level + 1))):
            pairs += (ct.cat((tiles[2 * pair], tiles[2 * pair + 1]), 1),)
        tiles = pairs
    return tiles[0]


def unstacked(t):
    """The 16 columns of t [C, 16] as rows [C]."""
    C = t.shape[0]
    rows = ()
    for r in ct.static_iter(range(ROWS)):
        rows += (ct.extract(t, (0, r), (C, 1)).reshape((C,)),)
    return rows


def regroup(rows, HIGH: int, LOW: int):
    """From index bits HIGH..HIGH+3 as the row to bits LOW..LOW+3. The place in a row is made of the other bits, in order."""
    t = stacked(rows)
    C = t.shape[0]
    in_order = ct.permute(t.reshape((C >> HIGH, 1 << HIGH, ROWS)), (0, 2, 1))
    t = ct.permute(in_order.reshape((C >> LOW, ROWS, 1 << LOW)), (0, 2, 1))
    return unstacked(t.reshape((C, ROWS)))


def times(row, sign):
    """A row in the reverse order of values where sign is -1: negated, or complemented, which has no exception for integers."""
    return row * sign + ((sign - 1) >> 1) if row.dtype == ct.int32 else row * sign


def turn(rows, k):
    """Negate what changes its direction before merge k. The runs that a merge makes alternate: bit k of the index.

    The row is index bits 0..3, the place in it index bits 4 and up. The last merge's bit is 0 everywhere.
    """
    places = ct.arange(rows[0].shape[0], dtype=ct.int32)
    bit = (places >> (k - 4)) ^ (places >> (k - 5))
    sign = (1 - 2 * (bit & 1)).astype(rows[0].dtype)
    result = ()
    for r in ct.static_iter(range(ROWS)):
        result += (times(rows[r], sign),)
    return result


def sort_rows(rows, SLICE: int):
    """Sort 16 rows, 2^SLICE elements in any order, 9 <= SLICE <= 12, to index bits 0..3 as the row.

    Every second run is kept negated, not reversed. From the fifth on, merges are loops, or compiling would take minutes.
    """
    places = ct.arange(rows[0].shape[0], dtype=ct.int32)
    odd = (1 - 2 * (places & 1)).astype(rows[0].dtype)
    for k in ct.static_iter(range(1, 5)):
        turned = ()
        for r in ct.static_iter(range(ROWS)):
            # as in `turn`, with index bits that are bits of r
            bit = (r >> k) ^ (r >> (k - 1) if k > 1 else 0)
            row = rows[r]
            if bit % 2 == 1:
                row = ~row if row.dtype == ct.int32 else -row
            turned += (times(row, odd) if k == 4 else row,)
        rows = exchange_all(turned, k, 0)

    # One loop, though its first half has no stage for the highest row: every regrouping in the code takes shared memory of
    # its own, and a block with little of it leaves room for others.
    TOP = SLICE - 4
    for k in range(5, SLICE + 1):
        rows = regroup(turn(rows, k), 0, TOP)
        for step in ct.static_iter(range(4)):
            if k > SLICE - 1 - step:
                rows = exchange(rows, 3 - step, False)
        rows = regroup(rows, TOP, 4)
        for step in ct.static_iter(range(TOP - 4)):
            if k > TOP - 1 - step:
                rows = exchange(rows, TOP - 5 - step, False)
        rows = exchange_all(regroup(rows, 4, 0), 4, 0)
    return rows


@ct.kernel
def sort_slices(x, y, n, SLICE: ct.Constant[int], ALIGNED: ct.Constant[bool]):
    """Sort every slice of x [n], continued with infinity, into y [a multiple of 2^SLICE]. ALIGNED: 16 divides n."""
    C = (1 << SLICE) // ROWS
    end = ct.assume_divisible_by(n, 16) if ALIGNED else n
    rows = ()
    for r in ct.static_iter(range(ROWS)):
        places = (ct.bid(0) * ROWS + r) * C + ct.arange(C, dtype=ct.int32)
        rows += (x.get_raw_memory().load_offset(places, mask=places < end, padding_value=math.inf),)
    rows = sort_rows(rows, SLICE)
    ct.store(y, (ct.bid(0),), stacked(rows).reshape((1 << SLICE,)), allow_tma=False)


@ct.kernel
def merge_slices(y, half, SLICE: ct.Constant[int]):
    """The stages at distances 2^(SLICE-1), ..., 1 of the merge of runs of `half` elements, in place on y."""
    C = (1 << SLICE) // ROWS
    start = ct.bid(0) * (1 << SLICE)
    if start // (2 * half) * (2 * half) + half < y.shape[0]:  # else the second run is empty: nothing to merge
        rows = ()
        for r in ct.static_iter(range(ROWS)):
            rows += (ct.load(y, (ct.bid(0) * ROWS + r,), (C,), allow_tma=False),)
        rows = exchange_all(rows, 4, 0)
        rows = exchange_all(regroup(rows, SLICE - 4, 4), SLICE - 8, 0)
        rows = exchange_all(regroup(rows, 4, 0), 4, 0)
        ct.store(y, (ct.bid(0),), stacked(rows).reshape((1 << SLICE,)), allow_tma=False)


@ct.kernel
def cross(y, half, distance, C: ct.Constant[int], STAGES: ct.Constant[int], MIRROR: ct.Constant[bool]):
    """STAGES stages of the merge of runs of `half` elements, in place on y; the last one at `distance`, a multiple of C.

    MIRROR: they are the first ones. The second run is then held backwards, so that its smaller values move to higher
    rows: stored backwards again, they are in ascending order.
    """
    H = 1 << (STAGES - 1)
    column = ct.bid(0) * C
    base = column // distance * distance * (2 * H)  # the first element of the block's 2^STAGES · distance
    size = ct.assume_divisible_by(y.shape[0], C)
    memory = y.get_raw_memory()
    if base // (2 * half) * (2 * half) + half < size:
        places = column % distance + ct.arange(C, dtype=ct.int32)
        offsets, rows = (), ()
        for r in ct.static_iter(range(2 * H)):
            if MIRROR and r >= H:
                offsets += (base + (2 * H - (r - H)) * distance - 1 - places,)
            else:
                offsets += (base + r * distance + places,)
            rows += (memory.load_offset(offsets[r], mask=offsets[r] < size, padding_value=math.inf),)
        if MIRROR:
            rows = exchange(rows, STAGES - 1, False)
            rows = exchange_all(rows[:H], STAGES - 1, 0) + exchange_all(rows[H:], STAGES - 1, 0, True)
        else:
            rows = exchange_all(rows, STAGES, 0)
        for r in ct.static_iter(range(2 * H)):
            memory.store_offset(offsets[r], rows[r], mask=offsets[r] < size)


@functools.cache
def hinted(kernel: ct.kernel, warps: int) -> ct.kernel:
    """`kernel` for blocks of `warps` warps. A hinted kernel has compiled code of its own, so there is one of each."""
    return kernel.replace_hints(num_worker_warps=warps)


def passes(stages: int, most: int) -> list[int]:
    """Split `stages` into as few passes of at most `most` as there can be, as even as they can be."""
    count = -(-stages // most)
    return [stages // count + (i < stages % count) for i in range(count)]


def run(data: torch.Tensor, N: int, *, SLICE: int, STAGES: int, WARPS: int) -> torch.Tensor:
    """Return data [N] in ascending order: the first N elements of whole slices."""
    stream = torch.cuda.current_stream()
    slices = ct.cdiv(N, 1 << SLICE)
    y = torch.empty(slices << SLICE, dtype=data.dtype, device=data.device)
    ct.launch(stream, (slices,), hinted(sort_slices, WARPS), (data, y, N, SLICE, N % 16 == 0))
    for k in range(SLICE + 1, (N - 1).bit_length() + 1):
        half, left = 1 << (k - 1), k
        for stages in passes(k - SLICE, STAGES):
            C = 1 << min(12 - stages, SLICE)
            blocks = ct.cdiv(N, 1 << left) << (left - stages)
            arguments = (y, half, 1 << (left - stages), C, stages, left == k)
            ct.launch(stream, (blocks // C,), hinted(cross, 4), arguments)
            left -= stages
        ct.launch(stream, (slices,), hinted(merge_slices, WARPS), (y, half, SLICE))
    return y[:N]


def default(case: Case) -> Config:
    # A larger slice saves passes over memory; a smaller one is all that a short array needs.
    return {"SLICE": 10 if case["n"] <= 1024 else 12, "STAGES": 5, "WARPS": 8 if case["n"] > 1024 else 4}


def space(case: Case) -> list[Config]:
    return [
        {"SLICE": bits, "STAGES": stages, "WARPS": warps} for bits in (11, 12) for stages in (4, 5) for warps in (4, 8)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
