"""Bitonic sort in cuTile: the network in few passes over memory, every comparison between two registers of one thread.

Merge k joins a descending and an ascending run of 2^(k-1) elements by stages that compare partners at distance 2^(k-1), ...,
2, 1. The runs that it makes alternate in direction, the last one is ascending: so the padding above N, infinity, stays
where it is. A descending run is an ascending one of negated values.

- `sort_runs` runs merges 1 to RUN on chip, a run of 2^RUN elements per block.
- `merge_tiles` runs as many stages as a tile of 2^SLICE elements allows: the last ones of one merge, which compare close
  neighbours, and the first ones of the next merge, which compare rows far apart. `plan` cuts the network into such passes.

A block holds its elements as a tuple of 16 or 32 rows, tiles of C elements each. Equal places of all rows are in the same
thread, so an exchange of two rows is a minimum and a maximum without any other thread. `regroup` makes other bits of the
index the row; the compiler then moves the elements between the threads, through shared memory, once for four or five stages.
"""

import functools
import math
import operator

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators.bitonic_sort._plan import plan

ROWS = 16  # of `sort_runs`: four bits of the index
LONGEST = 12  # RUN at most: three times these four bits
BITS = 5  # of the index that are the row in `merge_tiles`


def exchanged(rows, BIT: int, DOWN: bool):
    """One stage: rows that differ in bit BIT of their index are put in order, the smaller value first, or last if DOWN.

    It runs in Python when the kernel is traced, inside `ct.static_eval`: written as tile code, the choice of each row's
    operation would be traced too, and a process would wait three times as long for its first sort.
    """
    return tuple(
        (ct.minimum if (r >> BIT & 1 == 0) != DOWN else ct.maximum)(row, rows[r ^ 1 << BIT])
        for r, row in enumerate(rows)
    )


def exchange_all(rows, FROM: int, TO: int, DOWN: bool = False):
    """The stages of row bits FROM - 1, ..., TO."""
    for BIT in ct.static_iter(reversed(range(TO, FROM))):
        rows = ct.static_eval(exchanged(rows, BIT, DOWN))
    return rows


def stacked(rows):
    """The tile [C, R] whose columns are R rows [C]."""
    tiles = ()
    for row in ct.static_iter(rows):
        tiles += (row[:, None],)
    for _ in ct.static_iter(range(len(rows).bit_length() - 1)):
        joined = ()
        for pair in ct.static_iter(zip(tiles[::2], tiles[1::2], strict=True)):
            joined += (ct.cat(pair, 1),)
        tiles = joined
    return tiles[0]


def unstacked(t):
    """The columns of t [C, R] as R rows [C]."""
    C, R = t.shape
    rows = ()
    for column in ct.static_iter((0, r) for r in range(R)):
        rows += (ct.extract(t, column, (C, 1)).reshape((C,)),)
    return rows


def regroup(rows, HIGH: int, LOW: int):
    """From index bits HIGH, HIGH + 1, ... as the row to bits LOW, LOW + 1, ...; the place is made of the other bits, in order."""
    t = stacked(rows)
    C, R = t.shape
    in_order = ct.permute(t.reshape((C >> HIGH, 1 << HIGH, R)), (0, 2, 1))
    t = ct.permute(in_order.reshape((C >> LOW, R, 1 << LOW)), (0, 2, 1))
    return unstacked(t.reshape((C, R)))


def scaled(rows, sign):
    """Every row times `sign`."""
    return ct.static_eval(tuple(row * sign for row in rows))


def turn(rows, k):
    """Negate what changes its direction before merge k. The runs that a merge makes alternate: bit k of the index.

    The row is index bits 0..3, the place in it index bits 4 and up. The last merge's bit is 0 everywhere.
    """
    places = ct.arange(rows[0].shape[0], dtype=ct.int32)
    bit = (places >> (k - 4)) ^ (places >> (k - 5))
    return scaled(rows, (1 - 2 * (bit & 1)).astype(rows[0].dtype))


def turned(rows, odd, k: int, minus=operator.neg, times=operator.mul):
    """`turn` before a merge k up to 4, where the bits of the index are the row's; in Python, as `exchanged`. odd: -1 in odd places."""
    bits = (r >> k ^ (r >> k - 1 if k > 1 else 0) for r in range(ROWS))
    rows = tuple(minus(row) if bit & 1 else row for bit, row in zip(bits, rows, strict=True))
    return tuple(times(row, odd) for row in rows) if k == 4 else rows


def sort_rows(rows, RUN: int):
    """Sort 16 rows, 2^RUN elements in any order, 9 <= RUN <= 12, to index bits 0..3 as the row.

    Every second run is kept negated, not reversed. From the fifth on, merges are loops, or compiling would take minutes.
    In a loop every regrouping needs shared memory of its own: the compiler puts no barrier between the last one of a turn,
    which reads, and the first one of the next turn, which writes. So the kernel has no hint of an occupancy, which would
    make them share.
    """
    places = ct.arange(rows[0].shape[0], dtype=ct.int32)
    odd = (1 - 2 * (places & 1)).astype(rows[0].dtype)
    for k in ct.static_iter(range(1, 5)):
        rows = exchange_all(ct.static_eval(turned(rows, odd, k)), k, 0)

    for k in range(5, 9):
        rows = regroup(turn(rows, k), 0, 4)
        for step in ct.static_iter(range(4)):
            if k > 7 - step:
                rows = ct.static_eval(exchanged(rows, 3 - step, False))
        rows = exchange_all(regroup(rows, 4, 0), 4, 0)

    TOP = RUN - 4
    for k in range(9, RUN + 1):
        rows = regroup(turn(rows, k), 0, TOP)
        for step in ct.static_iter(range(4)):
            if k > RUN - 1 - step:
                rows = ct.static_eval(exchanged(rows, 3 - step, False))
        rows = exchange_all(regroup(rows, TOP, 4), TOP - 4, 0)
        rows = exchange_all(regroup(rows, 4, 0), 4, 0)
    return rows


def sign_of(start, k, size):
    """-1 if the run of 2^k elements that holds place `start` is descending: an even one that is not the last. Else 1."""
    run = start >> k
    return 1 - 2 * ((run % 2 == 0) & (((run + 1) << k) < size)).astype(ct.int32)


@ct.kernel
def sort_runs(x, y, n, RUN: ct.Constant[int], ALIGNED: ct.Constant[bool]):
    """Sort every run of x [n], continued with infinity, into y [a multiple of 2^RUN]. ALIGNED: 16 divides n."""
    C = (1 << RUN) // ROWS
    end = ct.assume_divisible_by(n, 16) if ALIGNED else n
    rows = ()
    for r in ct.static_iter(range(ROWS)):
        places = (ct.bid(0) * ROWS + r) * C + ct.arange(C, dtype=ct.int32)
        rows += (x.get_raw_memory().load_offset(places, mask=places < end, padding_value=math.inf),)
    sign = sign_of(ct.bid(0) << RUN, RUN, y.shape[0]).astype(rows[0].dtype)
    rows = scaled(sort_rows(scaled(rows, sign), RUN), sign)
    ct.store(y, (ct.bid(0),), stacked(rows).reshape((1 << RUN,)), allow_tma=False)


def row_place(row, distance, HEAD: int, SLICE: int):
    """Where a tile's row begins, from the tile's start. The tile's element t = row · C + column is element t % ROW of the
    t // ROW-th of the 2^HEAD rows in memory, `distance` apart."""
    if HEAD >= BITS:
        return (row << (HEAD - BITS)) * distance
    part = (1 << (BITS - HEAD)) - 1
    return (row >> (BITS - HEAD)) * distance + (row & part) * (1 << (SLICE - BITS))


def column_places(distance, HEAD: int, SLICE: int):
    """Where the elements of a tile's row are, from the row's begin: [C], several rows in memory if these are shorter."""
    C = 1 << (SLICE - BITS)
    if HEAD <= BITS:
        return ct.arange(C, dtype=ct.int32)
    starts = ct.arange(1 << (HEAD - BITS), dtype=ct.int32)[:, None] * distance
    return (starts + ct.arange(1 << (SLICE - HEAD), dtype=ct.int32)[None, :]).reshape((C,))


@ct.kernel
def merge_tiles(y, k, distance, TAIL: ct.Constant[int], HEAD: ct.Constant[int], SLICE: ct.Constant[int]):
    """One pass of `plan`, in place on y, with rows of 2^(SLICE - HEAD) elements, `distance` apart."""
    ROW, TOP = 1 << (SLICE - HEAD), SLICE - BITS
    HALF = 1 << (BITS - 1)
    size = ct.assume_divisible_by(y.shape[0], 1 << SLICE)
    memory = y.get_raw_memory()
    per_group = distance // ROW  # tiles whose rows lie between each other
    start = ct.bid(0) // per_group * (distance << HEAD) + ct.bid(0) % per_group * ROW
    # A pass inside one merge has nothing to do where the second run is empty.
    needed = start if TAIL > 0 and HEAD > 0 else (start >> k << k) + (1 << (k - 1))
    if needed < size:
        # Two neighbours of fp16 come and go as one word: a row has at least 2^3 elements.
        start = ct.assume_divisible_by(start, 8)
        distance = ct.assume_divisible_by(distance, 8)
        columns = start + column_places(distance, HEAD, SLICE)
        rows = ()
        for r in ct.static_iter(range(1 << BITS)):
            places = row_place(r, distance, HEAD, SLICE) + columns
            rows += (memory.load_offset(places, mask=places < size, padding_value=math.inf),)
        sign = sign_of(start, k, size).astype(y.dtype)

        if TAIL > 0:
            # With a head, two runs of the merge before k: the upper one is ascending.
            before = sign_of(start, k - 1, size).astype(y.dtype) if HEAD > 0 else sign
            rows = scaled(rows[:HALF], before) + (rows[HALF:] if HEAD > 0 else scaled(rows[HALF:], before))
            rows = exchange_all(rows, max(TAIL, TOP) - TOP, 0)
            if TAIL > BITS:
                rows = exchange_all(regroup(rows, TOP, BITS), min(TAIL, TOP) - BITS, 0)
                rows = regroup(rows, BITS, 0)
            else:
                rows = regroup(rows, TOP, 0)
            rows = regroup(exchange_all(rows, min(TAIL, BITS), 0), 0, TOP)
            rows = scaled(rows[:HALF], before) + (rows[HALF:] if HEAD > 0 else scaled(rows[HALF:], before))

        if HEAD > 0:
            rows = exchange_all(scaled(rows, sign), BITS, max(HEAD, BITS) - HEAD)
            if HEAD > BITS:
                rows = exchange_all(regroup(rows, TOP, TOP - BITS), BITS, 2 * BITS - HEAD)
                rows = regroup(rows, TOP - BITS, TOP)
            rows = scaled(rows, sign)

        # One store: between two of them all threads of a block wait for each other.
        r = ct.arange(1 << BITS, dtype=ct.int32)[None, :]
        places = row_place(r, distance, HEAD, SLICE) + columns[:, None]
        memory.store_offset(places, stacked(rows), mask=places < size)


@functools.cache
def hinted(kernel: ct.kernel, warps: int, per_sm: int | None) -> ct.kernel:
    """`kernel` for `per_sm` blocks of `warps` warps. A hinted kernel has compiled code of its own, so there is one of each."""
    hints = {} if per_sm is None else {"occupancy": per_sm}
    return kernel.replace_hints(num_worker_warps=warps, **hints)


def run(data: torch.Tensor, N: int, *, SLICE: int, ROW: int, SORT_WARPS: int, WARPS: int, PER_SM: int) -> torch.Tensor:
    """Return data [N] in ascending order: the first N elements of whole slices."""
    stream = torch.cuda.current_stream()
    size = ct.cdiv(N, 1 << SLICE) << SLICE
    y = torch.empty(size, dtype=data.dtype, device=data.device)
    bits = min(SLICE, LONGEST)
    ct.launch(stream, (size >> bits,), hinted(sort_runs, SORT_WARPS, None), (data, y, N, bits, N % 16 == 0))
    merge = hinted(merge_tiles, WARPS, PER_SM)
    if bits < SLICE:
        ct.launch(stream, (size >> SLICE,), merge, (y, SLICE, 1 << SLICE, SLICE, 0, SLICE))
    for k, tail, head, shift, _ in plan((N - 1).bit_length(), SLICE, ROW):
        tiles = ct.cdiv(size, 1 << (shift + head)) << (shift + head - SLICE)
        ct.launch(stream, (tiles,), merge, (y, k, 1 << shift, tail, head, SLICE))
    return y[:N]


def default(case: Case) -> Config:
    # A larger slice saves passes over memory; a smaller one fills the SMs when the array is short.
    values = 2 if case.dtype == "fp16" else 1  # of a register
    bits = 10 if case["n"] <= 1024 else 12 if values == 1 and case["n"] <= 1 << 20 else 13
    return config(bits, values, ROW=4)


def config(bits: int, values: int, ROW: int) -> Config:
    """Slices of 2^bits elements, 10 <= bits <= 13, in blocks that leave each thread 80 registers, 32 of which hold elements."""
    warps = min(8, max(4, (1 << bits) // (1024 * values)))
    return {"SLICE": bits, "ROW": ROW, "SORT_WARPS": 8 if bits > 10 else 4, "WARPS": warps, "PER_SM": 24 // warps}


def space(case: Case) -> list[Config]:
    # Not the full product: a kernel of `merge_tiles` takes Python a second to trace, and a configuration has up to nine.
    bases = [config(bits, 2 if case.dtype == "fp16" else 1, ROW) for bits in (12, 13) for ROW in (4, 5)]
    return [
        {**base, "SORT_WARPS": warps, "PER_SM": per_sm}
        for base in bases
        for per_sm in ((base["PER_SM"] * 2 // 3, base["PER_SM"]) if base["ROW"] == 4 else (base["PER_SM"],))
        for warps in (4, 8)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
