"""Radix sort in Triton: passes over digits of BITS bits (8 or 4), least significant first; three launches per pass.

- `count_digits` counts the digits of every tile,
- `scan_tiles` turns the counts of each digit into the number of equal digits in earlier tiles,
- `scatter` orders the keys of its tile by their digit on chip, so that equal digits leave as one run of neighbours.

A tile is ordered by the sorting network of the bitonic sort, which works in registers. It compares whole words: keys rotated
so that the digit comes first and the digits before it next. Earlier passes have put the array in order of those, so this is
an order that keeps equal digits as they are, and a word is all that a thread needs of a key.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel

from tilebench_operators.bitonic_sort.impl_triton import exchange_all, merge_in_slice

SIGN = tl.constexpr(-(1 << 31))
LAST_WORD = tl.constexpr(0x7FFFFFFF)  # `rotated` leaves it as it is


@triton.jit
def rotated(words, BITS: tl.constexpr):
    """int32 words in the order of their bits rotated to the right by BITS. The sign bit counts the other way round: it is flipped."""
    bits = words ^ SIGN
    return ((bits << (32 - BITS)) | ((bits >> BITS) & ((1 << (32 - BITS)) - 1))) ^ SIGN


@triton.jit
def load_words(x_ptr, offsets, n, FIRST: tl.constexpr, BITS: tl.constexpr):
    """Words of x [n], LAST_WORD beyond n. FIRST: x holds keys, else words of this pass."""
    words = tl.load(x_ptr + offsets, mask=offsets < n, other=LAST_WORD)
    return rotated(words, BITS) if FIRST else words


@triton.jit
def digit_of(words, BITS: tl.constexpr):
    """The highest digit of signed words, 0 for the least one."""
    return (words >> (32 - BITS)) + (1 << (BITS - 1))


@triton.jit
def count_digits(x_ptr, counts_ptr, n, FIRST: tl.constexpr, BITS: tl.constexpr, TILE: tl.constexpr):
    """counts [tiles, 2^BITS]: how often each digit occurs in each tile of x [n]."""
    tile = tl.program_id(0)
    offsets = tile * TILE + tl.arange(0, TILE)
    DIGITS: tl.constexpr = 1 << BITS
    counts = tl.histogram(digit_of(load_words(x_ptr, offsets, n, FIRST, BITS), BITS), DIGITS, mask=offsets < n)
    tl.store(counts_ptr + tile * DIGITS + tl.arange(0, DIGITS), counts)


@triton.jit
def scan_tiles(counts_ptr, before_ptr, totals_ptr, tiles, DIGITS: tl.constexpr, CHUNK: tl.constexpr):
    """Four digits per program: before [tiles, DIGITS] is the exclusive sum of counts over tiles, totals [DIGITS] the sum."""
    digits = tl.program_id(0) * 4 + tl.arange(0, 4)
    totals = tl.zeros([4], tl.int32)
    for start in range(0, tiles, CHUNK):
        tile = start + tl.arange(0, CHUNK)
        offsets = tile[:, None] * DIGITS + digits[None, :]
        mask = (tile < tiles)[:, None]
        counts = tl.load(counts_ptr + offsets, mask=mask, other=0)
        tl.store(before_ptr + offsets, totals[None, :] + tl.cumsum(counts, 0) - counts, mask=mask)
        totals += tl.sum(counts, 0)
    tl.store(totals_ptr + digits, totals)


@triton.jit
def sort_words(x, TILE_BITS: tl.constexpr):
    """Sort a tile: int32 words x [32, C] in any order, to index bits 0..4 as the row.

    Runs that merge k makes alternate in direction, as bit k of the index tells. A descending run is an ascending one of
    complements: unlike a negative, the least integer has one.
    """
    index = tl.arange(0, x.shape[1])[None, :] * 32 + tl.arange(0, 32)[:, None]
    for k in tl.static_range(1, TILE_BITS + 1):
        turned = (index >> (k - 1)) & 1 if k > 1 else 0
        turns = ((index >> k) & 1 if k < TILE_BITS else 0) ^ turned
        x = x ^ (0 - turns)
        x = exchange_all(x, k, 0) if k <= 5 else merge_in_slice(x, k, TILE_BITS)
    return x


@triton.jit
def scatter(
    x_ptr, moved_ptr, counts_ptr, before_ptr, totals_ptr, n,
    FIRST: tl.constexpr, LAST: tl.constexpr, BITS: tl.constexpr, TILE_BITS: tl.constexpr,
):  # fmt: skip
    """Write a tile of 2^TILE_BITS of x [n] to its places in moved [n], as words of the next pass or, after the LAST one, as keys."""
    TILE: tl.constexpr = 1 << TILE_BITS
    DIGITS: tl.constexpr = 1 << BITS
    tile = tl.program_id(0)
    lanes = tl.arange(0, TILE)
    words = load_words(x_ptr, tile * TILE + lanes, n, FIRST, BITS)
    words = tl.reshape(tl.trans(sort_words(tl.reshape(words, [32, TILE // 32]), TILE_BITS)), [TILE])
    # A digit's run begins, in the result, after all smaller digits and after earlier tiles; in this tile, after the
    # smaller digits of the tile. The difference is how far the run moves.
    digits = tl.arange(0, DIGITS)
    totals = tl.load(totals_ptr + digits)
    counts = tl.load(counts_ptr + tile * DIGITS + digits)
    before = tl.load(before_ptr + tile * DIGITS + digits)
    moves = tl.cumsum(totals, 0) - totals + before - (tl.cumsum(counts, 0) - counts)
    places = lanes + tl.gather(moves, digit_of(words, BITS), 0)
    tl.store(moved_ptr + places, words if LAST else rotated(words, BITS), mask=tile * TILE + lanes < n)


def run(data: torch.Tensor, *, BITS: int, TILE_BITS: int, num_warps: int, maxnreg: int) -> torch.Tensor:
    """Return data [n], int32, in ascending order."""
    n = data.numel()
    tiles = triton.cdiv(n, 1 << TILE_BITS)
    result, other = torch.empty_like(data), torch.empty_like(data)
    digits = 1 << BITS
    counts = torch.empty((tiles, digits), dtype=torch.int32, device=data.device)
    before = torch.empty_like(counts)
    totals = torch.empty(digits, dtype=torch.int32, device=data.device)
    source, target = data, other  # an even number of passes: the last one writes to `result`
    for shift in range(0, 32, BITS):
        first = shift == 0
        count_digits[(tiles,)](source, counts, n, FIRST=first, BITS=BITS, TILE=1 << TILE_BITS, num_warps=4)
        scan_tiles[(digits // 4,)](counts, before, totals, tiles, DIGITS=digits, CHUNK=1024, num_warps=8)
        scatter[(tiles,)](
            source, target, counts, before, totals, n,
            FIRST=first, LAST=shift + BITS == 32, BITS=BITS, TILE_BITS=TILE_BITS, num_warps=num_warps, maxnreg=maxnreg,
        )  # fmt: skip
        source, target = target, result if target is other else other
    return result


def default(case: Case) -> Config:
    # A thread holds 32 words of the tile: the network's exchanges stay inside it. Its registers leave room for many warps.
    bits = 12 if case["n"] >= 1 << 21 else 11 if case["n"] > 1024 else 10
    return {"BITS": 8, "TILE_BITS": bits, "num_warps": max(1, 1 << bits >> 10), "maxnreg": 64}


def space(case: Case) -> list[Config]:
    return [
        {"BITS": digit, "TILE_BITS": bits, "num_warps": max(1, (1 << bits) // (32 * keys)), "maxnreg": registers}
        for digit in (8, 4)
        for bits in (11, 12, 13)
        for keys, registers in ((16, 64), (32, 64), (32, 80), (64, 128))
    ]


KERNEL = Kernel(run=run, default=default, space=space)
