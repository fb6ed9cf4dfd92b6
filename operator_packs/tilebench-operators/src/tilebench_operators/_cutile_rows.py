"""Tile functions for rows that are read in chunks: chunks known to lie inside need no bounds.

A checked load of 16-bit elements becomes a branch with the conversion to fp32 inside, so every load waits for the one
before it; loads without a check are issued back to back. So a kernel gets the number of chunks that lie inside (FULL)
as a constant, and checks the last chunk at most.
"""

from __future__ import annotations

import cuda.tile as ct

__all__ = ["full_chunks", "load", "store", "warps_per_sm"]


def full_chunks(rows: int, cols: int, ROWS: int, TILE: int) -> int:
    """Return how many chunks of [rows, cols] in tiles ROWS x TILE, from the left, lie inside for all tiles of rows."""
    return cols // TILE if rows % ROWS == 0 else 0


def load(array, index, shape, inside, padding):
    """The tile at `index`, without TMA, which takes longer to set up than it saves on a few rows. `inside` is constant.

    The compiler rejects a padding mode without a check.
    """
    if inside:
        return ct.load(array, index, shape, check_bounds=False, allow_tma=False)
    return ct.load(array, index, shape, padding_mode=padding, allow_tma=False)


def store(array, index, tile, inside):
    """Store the tile at `index`, without TMA; `inside` is constant."""
    ct.store(array, index, tile, check_bounds=not inside, allow_tma=False)


def warps_per_sm(elements: int, warps: int) -> int:
    """Return how many warps an SM should hold if `warps` of them keep `elements` fp32 values in their registers.

    The compiler counts registers down to that. Left alone, it fetches parameters so early that one block takes the
    registers of two.
    """
    per_thread = elements / (32 * warps)
    return 32 if per_thread <= 40 else 20 if per_thread <= 52 else 16
