"""Radix sort in cuTile: four passes over 8-bit digits, least significant first; four launches per pass.

- `sort_tiles` puts the keys of every tile in order, so that equal digits become one run of neighbours,
- `find_digits` searches the begin and the end of each digit in each tile: that counts them,
- `scan_tiles` turns the counts of each digit into the number of equal digits in earlier tiles,
- `scatter` moves the runs to their places.

cuTile has no scatter on chip and no histogram, so a tile is ordered by the sorting network of the bitonic sort, which works
in registers. It compares whole words, keys rotated so that the digit comes first and the digits before it next: earlier
passes have put the array in order of those, so this is the order that a stable sort by the digit gives.
"""

import functools

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators.bitonic_sort.impl_cutile import ROWS, sort_rows, stacked

DIGITS = 256
SIGN = -(1 << 31)


def rotated(words):
    """int32 words in the order of their bits rotated to the right by 8. The sign bit counts the other way round: it is flipped."""
    bits = words ^ SIGN
    return ((bits << 24) | ((bits >> 8) & 0xFFFFFF)) ^ SIGN


def digit_of(words):
    """The highest digit of signed words, 0 for the least one."""
    return (words >> 24) + DIGITS // 2


@ct.kernel
def sort_tiles(x, y, n, FIRST: ct.Constant[bool], TILE_BITS: ct.Constant[int]):
    """Sort every tile of the first n of x into y [whole tiles]. FIRST: x holds keys [n], else words [whole tiles]."""
    C = (1 << TILE_BITS) // ROWS
    rows = ()
    for r in ct.static_iter(range(ROWS)):
        if FIRST:
            places = (ct.bid(0) * ROWS + r,)
            row = rotated(ct.load(x, places, (C,), padding_mode=ct.PaddingMode.ZERO, allow_tma=False))
        else:
            row = ct.load(x, (ct.bid(0) * ROWS + r,), (C,), check_bounds=False, allow_tma=False)
        inside = (ct.bid(0) * ROWS + r) * C + ct.arange(C, dtype=ct.int32) < n
        rows += (ct.where(inside, row, 0x7FFFFFFF),)  # to the end
    words = stacked(sort_rows(rows, TILE_BITS)).reshape((1 << TILE_BITS,))
    ct.store(y, (ct.bid(0),), words, allow_tma=False)


def count_below(words, start, size, digits, TILE_BITS: int):
    """How many of the sorted words from `start` on, `size` of them, have a digit less than each of `digits`."""
    count = digits * 0
    for step in ct.static_iter(range(TILE_BITS + 1)):
        more = count + (1 << (TILE_BITS - step))
        word = words.load_offset(start + more - 1, mask=more <= size, padding_value=0x7FFFFFFF)
        count = ct.where((more <= size) & (digit_of(word) < digits), more, count)
    return count


@ct.kernel
def find_digits(words, counts, starts, n, TILE_BITS: ct.Constant[int]):
    """counts and starts [tiles, 256]: how often each digit occurs in each sorted tile of n words, and its first place."""
    tile = ct.bid(0)
    start = tile << TILE_BITS
    size = min(n - start, 1 << TILE_BITS)
    digits = ct.arange(DIGITS, dtype=ct.int32)
    memory = words.get_raw_memory()
    first = count_below(memory, start, size, digits, TILE_BITS)
    end = count_below(memory, start, size, digits + 1, TILE_BITS)
    ct.store(starts, (tile, 0), first.reshape((1, DIGITS)), allow_tma=False)
    ct.store(counts, (tile, 0), (end - first).reshape((1, DIGITS)), allow_tma=False)


@ct.kernel
def scan_tiles(counts, before, totals, CHUNK: ct.Constant[int]):
    """Four digits per block: before [tiles, 256] is the exclusive sum over the tiles of counts, totals [256] the sum."""
    digits = ct.bid(0)
    total = ct.zeros((1, 4), ct.int32)
    for chunk in range(ct.cdiv(counts.shape[0], CHUNK)):
        t = ct.load(counts, (chunk, digits), (CHUNK, 4), padding_mode=ct.PaddingMode.ZERO, allow_tma=False)
        ct.store(before, (chunk, digits), total + ct.cumsum(t, 0) - t, allow_tma=False)
        total = total + ct.sum(t, 0, keepdims=True)
    ct.store(totals, (digits,), total.reshape((4,)), allow_tma=False)


@ct.kernel
def scatter(words, moved, starts, before, totals, moves, n, LAST: ct.Constant[bool], TILE: ct.Constant[int]):
    """Write sorted tiles of n words to their places in moved, as words of the next pass or, after the LAST one, as keys.

    moves [tiles, 256] is scratch memory.
    """
    tile = ct.bid(0)
    # A digit's run begins, in the result, after all smaller digits and after earlier tiles. How far does it move?
    total = ct.load(totals, (0,), (DIGITS,), allow_tma=False)
    start = ct.load(starts, (tile, 0), (1, DIGITS), allow_tma=False).reshape((DIGITS,))
    earlier = ct.load(before, (tile, 0), (1, DIGITS), allow_tma=False).reshape((DIGITS,))
    move = ct.cumsum(total) - total + earlier - start
    ct.store(moves, (tile, 0), move.reshape((1, DIGITS)), allow_tma=False)

    word = ct.load(words, (tile,), (TILE,), check_bounds=False, allow_tma=False)
    lanes = ct.arange(TILE, dtype=ct.int32)
    inside = tile * TILE + lanes < n
    move = moves.get_raw_memory().load_offset(tile * DIGITS + digit_of(word), mask=inside, padding_value=0)
    moved.get_raw_memory().store_offset(lanes + move, word if LAST else rotated(word), mask=inside)


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
    counts = torch.empty((tiles, DIGITS), dtype=torch.int32, device=data.device)
    starts, before, moves = torch.empty_like(counts), torch.empty_like(counts), torch.empty_like(counts)
    totals = torch.empty(DIGITS, dtype=torch.int32, device=data.device)
    source = data
    for digit in range(4):
        ct.launch(stream, (tiles,), hinted(sort_tiles, WARPS), (source, ordered, n, digit == 0, TILE_BITS))
        ct.launch(stream, (tiles,), find_digits, (ordered, counts, starts, n, TILE_BITS))
        ct.launch(stream, (DIGITS // 4,), scan_tiles, (counts, before, totals, 256))
        arguments = (ordered, result, starts, before, totals, moves, n, digit == 3, 1 << TILE_BITS)
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
