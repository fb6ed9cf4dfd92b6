"""Configurations of the cuTile kernels that keep rows on chip: softmax and the normalizations over the last axis.

A block takes ROWS rows and reads each in chunks of TILE columns. TILE is as many columns as the warps of one row load
with one 16-byte access per thread, so that chunks waste at most one access per thread on a row's end, where one tile
of a power of two would waste up to half of all lanes. A block has four or eight warps, so short rows go together.
"""

from __future__ import annotations

import functools
from typing import Any

from tilebench_core import Config

__all__ = ["fits_on_chip", "hinted", "row_default", "row_space"]

MAX_PER_THREAD = 64  # elements of the rows; as fp32 they take half of the registers that two blocks per SM may have
GOOD_PER_THREAD = 48
MIN_BLOCKS = 264  # two for each SM of a large GPU


@functools.cache
def hinted(kernel: Any, warps: int, warps_per_sm: int = 0) -> Any:
    """`kernel` for blocks of `warps` warps, with registers few enough for `warps_per_sm` of them on an SM (0: as many
    as it likes). A hinted kernel has compiled code of its own, so there is one of each."""
    if warps_per_sm:
        return kernel.replace_hints(num_worker_warps=warps, occupancy=warps_per_sm // warps)
    return kernel.replace_hints(num_worker_warps=warps)


def fits_on_chip(cols: int, ROWS: int, WARPS: int, per_thread: int = MAX_PER_THREAD) -> bool:
    """Return whether ROWS rows of `cols` elements fit into the registers of WARPS warps, `per_thread` in each thread."""
    return cols * ROWS <= per_thread * 32 * WARPS


def _config(together: int, warps: int, dtype_size: int) -> Config:
    return {"ROWS": together, "TILE": warps // together * 32 * (16 // dtype_size), "WARPS": warps}


def row_default(rows: int, cols: int, dtype_size: int, min_blocks: int = MIN_BLOCKS) -> Config:
    """The configuration for [rows, cols]: as few warps per row as hold it well, and short rows together."""
    if cols > GOOD_PER_THREAD * 32 * 4:
        return _config(1, 8, dtype_size)
    together = 4
    while together > 1 and (cols * together > GOOD_PER_THREAD * 32 * 4 or rows < min_blocks * together):
        together //= 2
    return _config(together, 4, dtype_size)


def row_space(rows: int, cols: int, dtype_size: int, min_blocks: int = MIN_BLOCKS) -> list[Config]:
    """Every number of rows that goes together in four and in eight warps."""
    fitting = [
        _config(together, warps, dtype_size)
        for warps in (4, 8)
        for together in (1, 2, 4, 8)
        if together <= warps and fits_on_chip(cols, together, warps) and together <= max(1, rows // min_blocks)
    ]
    return fitting or [_config(1, 4, dtype_size), _config(1, 8, dtype_size)]
