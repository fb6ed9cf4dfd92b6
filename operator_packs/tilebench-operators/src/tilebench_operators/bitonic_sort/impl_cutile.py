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
the row; the compiler then moves the elements between the threads, through shared memory, once for five stages.
"""

import functools

import cuda.tile as ct
import torch

from tilebench_core import Case, Config, Kernel

ROWS = 32  # five bits of the index
INF = ct.PaddingMode.POS_INF


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
    """The tile [C, 32] whose columns are 32 rows [C]."""
    tiles = ()
    for r in ct.static_iter(range(ROWS)):
        tiles += (rows[r][:, None],)
    for level in ct.static_iter(range(5)):
        pairs = ()
        for pair in ct.static_iter(range(ROWS >> (level + 1))):
            pairs += (ct.cat((tiles[2 * pair], tiles[2 * pair + 1]), 1),)
        tiles = pairs
    return tiles[0]


def unstacked(t):
    """The 32 columns of t [C, 32] as rows [C]."""
    C = t.shape[0]
    rows = ()
    for r in ct.static_iter(range(ROWS)):
        rows += (ct.extract(t, (0, r), (C, 1)).reshape((C,)),)
    return rows


def regroup(rows, HIGH: int, LOW: int):
    """From index bits HIGH..HIGH+4 as the row to bits LOW..LOW+4. The place in a row is made of the other bits, in order."""
    t = stacked(rows)
    C = t.shape[0]
    in_order = ct.permute(t.reshape((C >> HIGH, 1 << HIGH, ROWS)), (0, 2, 1))
    t = ct.permute(in_order.reshape((C >> LOW, ROWS, 1 << LOW)), (0, 2, 1))
    return unstacked(t.reshape((C, ROWS)))


def sort_rows(rows, SLICE: int):
    """Sort 32 rows [C] in any order, 2^SLICE elements, 10 <= SLICE <= 14, to index bits 0..4 as the row.

    Every second run is kept negated, not reversed. Merges beyond the fifth are loops, or compiling would take minutes.
    """
    C = rows[0].shape[0]
    places = ct.arange(C, dtype=ct.int32)  # index bits 5 and up
    for k in ct.static_iter(range(1, 6)):
        if k > 1:
            turned = ()
            for r in ct.static_iter(range(ROWS)):
                # Runs of the merge before: bit k - 1 of the index. Runs of this merge: bit k, here for k = 5 in `places`.
                if k == 5:
                    sign = 1 - 2 * (((r >> 4) + places) & 1)
                    turned += (rows[r] * sign.astype(rows[r].dtype),)
                elif (r >> (k - 1)) % 2 != (r >> k) % 2:
                    turned += (-rows[r],)
                else:
                    turned += (rows[r],)
            rows = turned
        else:
            turned = ()
            for r in ct.static_iter(range(ROWS)):
                turned += (-rows[r] if (r >> 1) % 2 == 1 else rows[r],)
            rows = turned
        rows = exchange_all(rows, k, 0)
    return rows
