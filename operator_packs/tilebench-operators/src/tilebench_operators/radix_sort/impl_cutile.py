"""Radix sort in cuTile: four passes over 8-bit digits, least significant first; three launches per pass.

- `sort_tiles` puts the keys of every tile in order, so that equal digits become one run of neighbours, and searches the first
  place of each run,
- `scan_tiles` sums these places over the tiles: that tells how many equal digits earlier tiles have,
- `scatter` moves the runs to their places.

cuTile has no scatter on chip and no histogram, so a tile is ordered by the sorting network of the bitonic sort, which works
in registers. It compares whole words, keys rotated so that the digit comes first and the digits before it next: earlier
passes have put the array in order of those, so this is the order that a stable sort by the digit gives.
"""

import functools
import operator

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators.bitonic_sort.impl_cutile import ROWS, exchange_all, exchanged, regroup, stacked, turned

DIGITS = 256
SIGN = -(1 << 31)
LAST_WORD = 0x7FFFFFFF  # `rotated` leaves it as it is


def rotated(words):
    """int32 words in the order of their bits rotated to the right by 8. The sign bit counts the other way round: it is flipped."""
    bits = words ^ SIGN
    return ((bits << 24) | ((bits >> 8) & 0xFFFFFF)) ^ SIGN


def digit_of(words):
    """The highest digit of signed words, 0 for the least one."""
    return (words >> 24) + DIGITS // 2


def times(row, sign):
    """A row in the reverse order of values where sign is -1: complemented, since the least integer has no negative."""
    return row * sign + ((sign - 1) >> 1)


def turn(rows, k):
    """`bitonic_sort`'s function of that name, for integers: reverse what changes its direction before merge k."""
    places = ct.arange(rows[0].shape[0], dtype=ct.int32)
    sign = 1 - 2 * (((places >> (k - 4)) ^ (places >> (k - 5))) & 1)
    return ct.static_eval(tuple(times(row, sign) for row in rows))


def sort_rows(rows, TILE_BITS: int):
    """Sort 16 rows, 2^TILE_BITS words in any order, 9 <= TILE_BITS <= 12, to index bits 0..3 as the row."""
    odd = 1 - 2 * (ct.arange(rows[0].shape[0], dtype=ct.int32) & 1)
    for k in ct.static_iter(range(1, 5)):
        rows = exchange_all(ct.static_eval(turned(rows, odd, k, operator.invert, times)), k, 0)

    # One loop, though its first half has no stage for the highest row: every regrouping in the code takes shared memory of
    # its own, and a block with little of it leaves room for others.
    TOP = TILE_BITS - 4
    for k in range(5, TILE_BITS + 1):
        rows = regroup(turn(rows, k), 0, TOP)
        for step in ct.static_iter(range(4)):
            if k > TILE_BITS - 1 - step:
                rows = ct.static_eval(exchanged(rows, 3 - step, False))
        rows = regroup(rows, TOP, 4)
        for step in ct.static_iter(range(TOP - 4)):
            if k > TOP - 1 - step:
                rows = ct.static_eval(exchanged(rows, TOP - 5 - step, False))
        rows = exchange_all(regroup(rows, 4, 0), 4, 0)
    return rows


@ct.kernel
def sort_tiles(x, y, starts, n, FIRST: ct.Constant[bool], TILE_BITS: ct.Constant[int]):
    """Sort every tile of the first n of x into y [whole tiles]; what is missing in the last one follows as LAST_WORD.

    starts [tiles, 256]: how many words of the tile have a digit less than each, which is where its run starts. FIRST: x holds
    keys [n], else words [whole tiles].
    """
    TILE = 1 << TILE_BITS
    tile = ct.bid(0)
    rows = ()
    for r in ct.static_iter(range(ROWS)):
        places = (tile * ROWS + r) * (TILE // ROWS) + ct.arange(TILE // ROWS, dtype=ct.int32)
        row = x.get_raw_memory().load_offset(places, mask=places < n, padding_value=LAST_WORD)
        rows += (rotated(row) if FIRST else row,)
    words = stacked(sort_rows(rows, TILE_BITS)).reshape((TILE,))
    ct.store(y, (tile,), words, check_bounds=False, allow_tma=False)

    digits = ct.arange(DIGITS, dtype=ct.int32)
    count = digits * 0
    for step in ct.static_iter((*range(TILE_BITS - 1, -1, -1), 0)):  # the last 1 is for a count of the whole tile
        word = y.get_raw_memory().load_offset(tile * TILE + count + ((1 << step) - 1))
        count = ct.where(digit_of(word) < digits, count + (1 << step), count)
    ct.store(starts, (tile, 0), count.reshape((1, DIGITS)), check_bounds=False, allow_tma=False)


@ct.kernel
def scan_tiles(starts, before, totals, CHUNK: ct.Constant[int]):
    """Two digits per block: before [tiles, 256] is the exclusive sum over the tiles of starts, totals [256] the sum."""
    digits = ct.bid(0)
    total = ct.zeros((1, 2), ct.int32)
    for chunk in range(ct.cdiv(starts.shape[0], CHUNK)):
        t = ct.load(starts, (chunk, digits), (CHUNK, 2), padding_mode=ct.PaddingMode.ZERO, allow_tma=False)
        up_to = total + ct.cumsum(t, 0)
        ct.store(before, (chunk, digits), up_to - t, allow_tma=False)
        total = ct.extract(up_to, (CHUNK - 1, 0), (1, 2))
    ct.store(totals, (digits,), total.reshape((2,)), allow_tma=False)


@ct.kernel
def scatter(
    words, moved, starts, before, totals, moves, n,
    LAST: ct.Constant[bool], TILE: ct.Constant[int], C: ct.Constant[int],
):  # fmt: skip
    """Write sorted tiles of n words to their places in moved, as words of the next pass or, after the LAST one, as keys.

    moves [tiles, 256] is scratch memory. A tile is taken in rows of C words, as many as the block has threads: neighbours in
    a run are then in neighbouring threads, and leave together.
    """
    tile = ct.bid(0)
    rows = ()
    for r in ct.static_iter(range(TILE // C)):
        rows += (ct.load(words, (tile * (TILE // C) + r,), (C,), check_bounds=False, allow_tma=False),)

    # A digit's run begins, in the result, after all smaller digits and after equal ones of earlier tiles. Those are as many as
    # there are up to this digit, in the earlier tiles, less as many as there are below it. How far does the run move?
    digits = ct.arange(DIGITS, dtype=ct.int32)
    smaller = ct.load(totals, (0,), (DIGITS,), check_bounds=False, allow_tma=False)
    start = ct.load(starts, (tile, 0), (1, DIGITS), check_bounds=False, allow_tma=False).reshape((DIGITS,))
    below = ct.load(before, (tile, 0), (1, DIGITS), check_bounds=False, allow_tma=False).reshape((DIGITS,))
    inner = digits < DIGITS - 1
    up_to = before.get_raw_memory().load_offset(tile * DIGITS + 1 + digits, mask=inner, padding_value=0)
    move = smaller + ct.where(inner, up_to, tile * TILE) - below - start
    ct.store(moves, (tile, 0), move.reshape((1, DIGITS)), check_bounds=False, allow_tma=False)

    targets = ()
    for r in ct.static_iter(range(TILE // C)):
        move = moves.get_raw_memory().load_offset(tile * DIGITS + digit_of(rows[r]))
        targets += (r * C + ct.arange(C, dtype=ct.int32) + move,)
    for r in ct.static_iter(range(TILE // C)):
        inside = tile * TILE + r * C + ct.arange(C, dtype=ct.int32) < n
        moved.get_raw_memory().store_offset(targets[r], rows[r] if LAST else rotated(rows[r]), mask=inside)


@functools.cache
def hinted(kernel: ct.kernel, warps: int) -> ct.kernel:
    """`kernel` for blocks of `warps` warps. A hinted kernel has compiled code of its own."""
    return kernel.replace_hints(num_worker_warps=warps)


def run(data: torch.Tensor, *, TILE_BITS: int, WARPS: int) -> torch.Tensor:
    """Return data [n], int32, in ascending order: the first n of whole tiles."""
    stream = torch.cuda.current_stream()
    n = data.numel()
    tiles = ct.cdiv(n, 1 << TILE_BITS)
    ordered = torch.empty(tiles << TILE_BITS, dtype=torch.int32, device=data.device)
    result = torch.empty_like(ordered)
    starts = torch.empty((tiles, DIGITS), dtype=torch.int32, device=data.device)
    before, moves = torch.empty_like(starts), torch.empty_like(starts)
    totals = torch.empty(DIGITS, dtype=torch.int32, device=data.device)
    source = data
    for digit in range(4):
        arguments = (source, ordered, starts, n, digit == 0, TILE_BITS)
        ct.launch(stream, (tiles,), hinted(sort_tiles, WARPS), arguments)
        chunk = 256 if tiles <= 1024 else 1024
        ct.launch(stream, (DIGITS // 2,), hinted(scan_tiles, 8), (starts, before, totals, chunk))
        arguments = (ordered, result, starts, before, totals, moves, n, digit == 3, 1 << TILE_BITS, 256)
        ct.launch(stream, (tiles,), hinted(scatter, 8), arguments)
        source = result
    return result[:n]


def default(case: Case) -> Config:
    # With 512 words per warp a thread has one place of every row, and the network needs little shared memory.
    bits = 12 if case["n"] >= 1 << 21 else 11 if case["n"] > 1024 else 10
    return {"TILE_BITS": bits, "WARPS": max(4, 1 << bits >> 9)}


def space(case: Case) -> list[Config]:
    return [{"TILE_BITS": bits, "WARPS": warps} for bits in (11, 12) for warps in (4, 8)]


KERNEL = Kernel(run=run, default=default, space=space)
