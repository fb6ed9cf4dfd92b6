"""Radix sort in cuTile: four passes over 8-bit digits, least significant first; three launches per pass.

- `count_digits` counts the digits of every tile,
- `scan_tiles` turns the counts of each digit into the number of equal digits in earlier tiles,
- `scatter` orders the keys of its tile by their digit on chip, so that equal digits leave as one run of neighbours.

A tile is ordered by the sorting network of the bitonic sort, which works in registers, on words of digit and index: the
index keeps equal digits in order. cuTile has no histogram, so the counts are atomic additions.
"""

import functools

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators.bitonic_sort.impl_cutile import ROWS, sort_rows, stacked

BITS = 8
DIGITS = 256


def digit_of(keys, shift):
    """The digit of int32 keys at bit `shift`. Negative keys come first: the sign bit counts the other way round."""
    return ((keys >> shift) & 255) ^ ct.where(shift == 24, 128, 0)


@ct.kernel
def count_digits(keys, counts, n, shift, TILE: ct.Constant[int]):
    """counts [tiles, 256], flat, zero before: how often each digit occurs in each tile of keys [n]."""
    tile = ct.bid(0)
    inside = tile * TILE + ct.arange(TILE, dtype=ct.int32) < n
    digits = digit_of(ct.load(keys, (tile,), (TILE,), allow_tma=False), shift)
    memory = counts.get_raw_memory()
    memory.atomic_add_offset(tile * DIGITS + digits, 1, mask=inside, memory_order=ct.MemoryOrder.RELAXED)


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
def scatter(keys, ordered, counts, before, totals, moves, n, shift, BITS_OF_TILE: ct.Constant[int]):
    """Write a tile of 2^BITS_OF_TILE of keys [n] to its places in ordered [n]; moves [tiles, 256] is scratch memory."""
    TILE = 1 << BITS_OF_TILE
    C = TILE // ROWS
    tile = ct.bid(0)
    # A digit's run begins, in the result, after all smaller digits and after earlier tiles; in this tile, after the
    # smaller digits of the tile. The difference is how far the run moves.
    total = ct.load(totals, (0,), (DIGITS,), allow_tma=False)
    count = ct.load(counts, (tile, 0), (1, DIGITS), allow_tma=False).reshape((DIGITS,))
    earlier = ct.load(before, (tile, 0), (1, DIGITS), allow_tma=False).reshape((DIGITS,))
    move = ct.cumsum(total) - total + earlier - (ct.cumsum(count) - count)
    ct.store(moves, (tile, 0), move.reshape((1, DIGITS)), allow_tma=False)

    memory = keys.get_raw_memory()
    words = ()
    for r in ct.static_iter(range(ROWS)):
        lanes = r * C + ct.arange(C, dtype=ct.int32)
        inside = tile * TILE + lanes < n
        key = memory.load_offset(tile * TILE + lanes, mask=inside, padding_value=0)
        # Lanes beyond n go to the end, as a digit above all others.
        words += ((ct.where(inside, digit_of(key, shift), DIGITS) << BITS_OF_TILE) | lanes,)
    word = stacked(sort_rows(words, BITS_OF_TILE)).reshape((TILE,))
    lanes = ct.arange(TILE, dtype=ct.int32)
    inside = tile * TILE + lanes < n
    key = memory.load_offset(tile * TILE + (word & (TILE - 1)), mask=inside, padding_value=0)
    digits = word >> BITS_OF_TILE
    move = moves.get_raw_memory().load_offset(tile * DIGITS + digits, mask=inside, padding_value=0)
    ordered.get_raw_memory().store_offset(lanes + move, key, mask=inside)


@functools.cache
def hinted(warps: int) -> ct.kernel:
    """`scatter` for blocks of `warps` warps. A hinted kernel has compiled code of its own."""
    return scatter.replace_hints(num_worker_warps=warps)


def run(data: torch.Tensor, *, TILE_BITS: int, WARPS: int) -> torch.Tensor:
    """Return data [n], int32, in ascending order."""
    stream = torch.cuda.current_stream()
    n = data.numel()
    tiles = ct.cdiv(n, 1 << TILE_BITS)
    result, other = torch.empty_like(data), torch.empty_like(data)
    counts = torch.zeros((32 // BITS, tiles, DIGITS), dtype=torch.int32, device=data.device)
    before, moves = torch.empty_like(counts[0]), torch.empty_like(counts[0])
    totals = torch.empty(DIGITS, dtype=torch.int32, device=data.device)
    source, target = data, other  # an even number of passes: the last one writes to `result`
    for shift in range(0, 32, BITS):
        count = counts[shift // BITS]
        ct.launch(stream, (tiles,), count_digits, (source, count.view(-1), n, shift, 1 << TILE_BITS))
        ct.launch(stream, (DIGITS // 4,), scan_tiles, (count, before, totals, 256))
        arguments = (source, target, count, before, totals, moves, n, shift, TILE_BITS)
        ct.launch(stream, (tiles,), hinted(WARPS), arguments)
        source, target = target, result if target is other else other
    return result


def default(case: Case) -> Config:
    return {"TILE_BITS": 12 if case["n"] >= 1 << 21 else 11 if case["n"] > 1024 else 10, "WARPS": 4}


def space(case: Case) -> list[Config]:
    return [{"TILE_BITS": bits, "WARPS": warps} for bits in (11, 12) for warps in (4, 8)]


KERNEL = Kernel(run=run, default=default, space=space)
