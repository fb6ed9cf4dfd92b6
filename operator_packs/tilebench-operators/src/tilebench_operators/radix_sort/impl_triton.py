"""Radix sort in Triton: passes over digits of 8 or 4 bits, least significant first; four launches per pass.

- `sort_tiles` puts the keys of every tile in order, so that equal digits become one run of neighbours,
- `find_digits` searches the begin and the end of each digit in each tile: that counts them,
- `scan_tiles` turns the counts of each digit into the number of equal digits in earlier tiles,
- `scatter` moves the runs to their places.

Triton has no scatter in shared memory, so a tile is ordered by the sorting network of the bitonic sort, which works in
registers. It compares whole words, keys rotated so that the digit comes first and the digits before it next: earlier
passes have put the array in order of those, so this is the order that a stable sort by the digit gives.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel

from tilebench_operators.bitonic_sort.impl_triton import rows_from, sort_tile

SIGN = tl.constexpr(-(1 << 31))


@triton.jit
def rotated(words, LEFT: tl.constexpr):
    """int32 words in the order of their bits rotated to the left. The sign bit counts the other way round: it is flipped."""
    bits = (words ^ SIGN).to(tl.uint32)
    return ((bits << LEFT) | (bits >> (32 - LEFT))).to(tl.int32) ^ SIGN


@triton.jit
def digit_of(words, BITS: tl.constexpr):
    """The highest digit of signed words, 0 for the least one."""
    return (words >> (32 - BITS)) + (1 << BITS - 1)


@triton.jit
def sort_tiles(x_ptr, y_ptr, n, FIRST: tl.constexpr, BITS: tl.constexpr, TILE_BITS: tl.constexpr):
    """Sort every tile of x [n] into y [n]; FIRST: x holds keys, not words."""
    C: tl.constexpr = 1 << (TILE_BITS - 5)
    # The hint: a thread gets whole columns of 32 rows as they come.
    columns = tl.max_contiguous(tl.arange(0, C), 1)[None, :]
    places = (tl.program_id(0) << TILE_BITS) + tl.arange(0, 32)[:, None] * C + columns
    inside = places < n
    words = tl.load(x_ptr + places, mask=inside, other=0)
    if FIRST:
        words = rotated(words, 32 - BITS)
    words = tl.where(inside, words, 0x7FFFFFFF)  # to the end
    words = rows_from(sort_tile(words, TILE_BITS), 0, TILE_BITS - 5)
    tl.store(y_ptr + places, words, mask=inside)


@triton.jit
def count_below(words_ptr, start, size, digits, BITS: tl.constexpr, TILE_BITS: tl.constexpr):
    """How many of the sorted words from `start` on, `size` of them, have a digit less than each of `digits`."""
    count = digits * 0
    for bit in tl.static_range(TILE_BITS, -1, -1):
        more = count + (1 << bit)
        word = tl.load(words_ptr + start + more - 1, mask=more <= size, other=0x7FFFFFFF)
        count = tl.where((more <= size) & (digit_of(word, BITS) < digits), more, count)
    return count


@triton.jit
def find_digits(words_ptr, counts_ptr, starts_ptr, n, BITS: tl.constexpr, TILE_BITS: tl.constexpr):
    """counts and starts [tiles, digits]: how often each digit occurs in each sorted tile of words [n], and its first place."""
    DIGITS: tl.constexpr = 1 << BITS
    tile = tl.program_id(0)
    start = tile << TILE_BITS
    size = tl.minimum(n - start, 1 << TILE_BITS)
    digits = tl.arange(0, DIGITS)
    starts = count_below(words_ptr, start, size, digits, BITS, TILE_BITS)
    ends = count_below(words_ptr, start, size, digits + 1, BITS, TILE_BITS)
    tl.store(starts_ptr + tile * DIGITS + digits, starts)
    tl.store(counts_ptr + tile * DIGITS + digits, ends - starts)


@triton.jit
def scan_tiles(
    counts_ptr, before_ptr, totals_ptr, tiles, BITS: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr
):  # fmt: skip
    """WIDTH digits per program: before [tiles, digits] is the exclusive sum of counts over tiles, totals [digits] the sum."""
    DIGITS: tl.constexpr = 1 << BITS
    digits = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    totals = tl.zeros([WIDTH], tl.int32)
    for start in range(0, tiles, CHUNK):
        tile = start + tl.arange(0, CHUNK)
        offsets = tile[:, None] * DIGITS + digits[None, :]
        mask = (tile < tiles)[:, None]
        counts = tl.load(counts_ptr + offsets, mask=mask, other=0)
        tl.store(before_ptr + offsets, totals[None, :] + tl.cumsum(counts, 0) - counts, mask=mask)
        totals += tl.sum(counts, 0)
    tl.store(totals_ptr + digits, totals)


@triton.jit
def scatter(
    words_ptr, moved_ptr, starts_ptr, before_ptr, totals_ptr, n,
    LAST: tl.constexpr, BITS: tl.constexpr, TILE_BITS: tl.constexpr,
):  # fmt: skip
    """Write the sorted tiles of words [n] to their places in moved [n], as words of the next pass or, after the LAST, as keys."""
    DIGITS: tl.constexpr = 1 << BITS
    tile = tl.program_id(0)
    # The hint: neighbours go to neighbouring threads, which store whole sectors.
    lanes = tl.max_contiguous(tl.arange(0, 1 << TILE_BITS), 1)
    places = (tile << TILE_BITS) + lanes
    inside = places < n
    words = tl.load(words_ptr + places, mask=inside, other=0)
    # A digit's run begins, in the result, after all smaller digits and after earlier tiles. How far does it move?
    digits = tl.arange(0, DIGITS)
    totals = tl.load(totals_ptr + digits)
    before = tl.load(before_ptr + tile * DIGITS + digits)
    starts = tl.load(starts_ptr + tile * DIGITS + digits)
    moves = tl.cumsum(totals, 0) - totals + before - starts
    target = lanes + tl.gather(moves, digit_of(words, BITS), 0)
    tl.store(moved_ptr + target, words if LAST else rotated(words, 32 - BITS), mask=inside)


def run(data: torch.Tensor, *, BITS: int, TILE_BITS: int) -> torch.Tensor:
    """Return data [n], int32, in ascending order."""
    n, digits = data.numel(), 1 << BITS
    tiles = triton.cdiv(n, 1 << TILE_BITS)
    ordered, result = torch.empty_like(data), torch.empty_like(data)
    counts = torch.empty((tiles, digits), dtype=torch.int32, device=data.device)
    starts, before = torch.empty_like(counts), torch.empty_like(counts)
    totals = torch.empty(digits, dtype=torch.int32, device=data.device)
    common = {"BITS": BITS, "TILE_BITS": TILE_BITS}
    source, last = data, 32 // BITS - 1
    for digit in range(last + 1):
        warps = max(1, 1 << TILE_BITS >> 10)
        sort_tiles[(tiles,)](source, ordered, n, FIRST=digit == 0, **common, num_warps=warps, maxnreg=64)
        find_digits[(tiles,)](ordered, counts, starts, n, **common, num_warps=max(1, digits // 32))
        scan_tiles[(digits // 4,)](counts, before, totals, tiles, BITS=BITS, WIDTH=4, CHUNK=1024, num_warps=8)
        scatter[(tiles,)](ordered, result, starts, before, totals, n, LAST=digit == last, **common, num_warps=8)
        source = result
    return result


def default(case: Case) -> Config:
    return {"BITS": 8, "TILE_BITS": 12 if case["n"] >= 1 << 21 else 11 if case["n"] > 1024 else 10}


def space(case: Case) -> list[Config]:
    return [{"BITS": bits, "TILE_BITS": tile} for bits in (8, 4) for tile in (11, 12, 13)]


KERNEL = Kernel(run=run, default=default, space=space)
