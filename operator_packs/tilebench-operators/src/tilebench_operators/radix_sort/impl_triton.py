"""Radix sort in Triton: passes over digits of BITS bits (8 or 4), least significant first; three launches per pass.

- `count_digits` counts the digits of every tile,
- `scan_tiles` turns the counts of each digit into the number of equal digits in earlier tiles,
- `scatter` orders the keys of its tile by their digit on chip, so that equal digits leave as one run of neighbours.

A tile is ordered by the sorting network of the bitonic sort, which works in registers, on words of digit and index: the
index keeps equal digits in order.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel

from tilebench_operators.bitonic_sort.impl_triton import sort_tile


@triton.jit
def digit_of(keys, shift, BITS: tl.constexpr):
    """The digit of int32 keys at bit `shift`. Negative keys come first: the sign bit counts the other way round."""
    return ((keys >> shift) & ((1 << BITS) - 1)) ^ tl.where(shift == 32 - BITS, 1 << (BITS - 1), 0)


@triton.jit
def count_digits(keys_ptr, counts_ptr, n, shift, BITS: tl.constexpr, TILE: tl.constexpr):
    """counts [tiles, 2^BITS]: how often each digit occurs in each tile of keys [n]."""
    tile = tl.program_id(0)
    offsets = tile * TILE + tl.arange(0, TILE)
    mask = offsets < n
    keys = tl.load(keys_ptr + offsets, mask=mask, other=0)
    DIGITS: tl.constexpr = 1 << BITS
    counts = tl.histogram(digit_of(keys, shift, BITS), DIGITS, mask=mask)
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
def scatter(
    keys_ptr, sorted_ptr, counts_ptr, before_ptr, totals_ptr, n, shift, BITS: tl.constexpr, TILE_BITS: tl.constexpr
):
    """Write a tile of 2^TILE_BITS of keys [n] to its places in sorted [n]."""
    TILE: tl.constexpr = 1 << TILE_BITS
    DIGITS: tl.constexpr = 1 << BITS
    tile = tl.program_id(0)
    lanes = tl.arange(0, TILE)
    mask = tile * TILE + lanes < n
    keys = tl.load(keys_ptr + tile * TILE + lanes, mask=mask, other=0)
    words = (tl.where(mask, digit_of(keys, shift, BITS), DIGITS) << TILE_BITS) | lanes  # lanes beyond n go to the end
    words = sort_tile(tl.reshape(words, [32, TILE // 32]), TILE_BITS)
    words = tl.reshape(tl.trans(words), [TILE])
    # A digit's run begins, in the result, after all smaller digits and after earlier tiles; in this tile, after the
    # smaller digits of the tile. The difference is how far the run moves.
    digits = tl.arange(0, DIGITS)
    totals = tl.load(totals_ptr + digits)
    counts = tl.load(counts_ptr + tile * DIGITS + digits)
    before = tl.load(before_ptr + tile * DIGITS + digits)
    moves = tl.cumsum(totals, 0) - totals + before - (tl.cumsum(counts, 0) - counts)
    places = lanes + tl.gather(moves, tl.minimum(words >> TILE_BITS, DIGITS - 1), 0)
    tl.store(sorted_ptr + places, tl.gather(keys, words & (TILE - 1), 0), mask=mask)


def run(data: torch.Tensor, *, BITS: int, TILE_BITS: int, num_warps: int) -> torch.Tensor:
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
        count_digits[(tiles,)](source, counts, n, shift, BITS=BITS, TILE=1 << TILE_BITS, num_warps=4)
        scan_tiles[(digits // 4,)](counts, before, totals, tiles, DIGITS=digits, CHUNK=1024, num_warps=8)
        scatter[(tiles,)](
            source, target, counts, before, totals, n, shift, BITS=BITS, TILE_BITS=TILE_BITS, num_warps=num_warps
        )
        source, target = target, result if target is other else other
    return result


def default(case: Case) -> Config:
    # A thread holds 32 keys of the tile: the network's exchanges stay inside it.
    bits = 12 if case["n"] >= 1 << 21 else 11 if case["n"] > 1024 else 10
    return {"BITS": 8, "TILE_BITS": bits, "num_warps": max(1, 1 << bits >> 10)}


def space(case: Case) -> list[Config]:
    return [
        {"BITS": digit, "TILE_BITS": bits, "num_warps": max(1, (1 << bits) // (32 * keys))}
        for digit in (8, 4)
        for bits in (11, 12, 13)
        for keys in (16, 32, 64)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
