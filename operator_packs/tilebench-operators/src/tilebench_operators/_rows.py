"""Configurations of the Triton kernels that keep rows on chip: softmax and the normalizations over the last axis.

A program takes ROWS rows and reads each in chunks of BLOCK columns. BLOCK is as many columns as the warps of one row
load with one 16-byte access per thread, so that chunks waste at most one access per thread on a row's end, where one
tile of a power of two would waste up to half of all lanes.
"""

from __future__ import annotations

from tilebench_core import Config

__all__ = ["fits_on_chip", "row_default", "row_space"]

MAX_PER_THREAD = 64  # elements of the rows; as fp32 they take half of the registers that two blocks per SM may have
GOOD_PER_THREAD = 48
MAX_WARPS = 16
MIN_PROGRAMS = 264  # two for each SM of a large GPU


def fits_on_chip(cols: int, ROWS: int, num_warps: int) -> bool:
    """Return whether ROWS rows of `cols` elements fit into the registers of `num_warps` warps."""
    return cols * ROWS <= MAX_PER_THREAD * 32 * num_warps


def _config(rows_per_program: int, warps_per_row: int, dtype_size: int) -> Config:
    block = warps_per_row * 32 * (16 // dtype_size)
    return {"ROWS": rows_per_program, "BLOCK": block, "num_warps": rows_per_program * warps_per_row}


def row_default(rows: int, cols: int, dtype_size: int) -> Config:
    """The configuration for [rows, cols]: as few warps per row as hold it well, and short rows together."""
    warps = 1
    while warps < MAX_WARPS and cols > GOOD_PER_THREAD * 32 * warps:
        warps *= 2
    together = max(1, 4 // warps)
    while together > 1 and rows < MIN_PROGRAMS * together:
        together //= 2
    return _config(together, warps, dtype_size)


def row_space(rows: int, cols: int, dtype_size: int) -> list[Config]:
    """All sensible numbers of warps per row, each with one or more rows per program."""
    needed = [w for w in (1, 2, 4, 8, 16) if 8 * 32 * w <= max(cols, 256) and fits_on_chip(cols, 1, w)] or [8, 16]
    return [
        _config(together, warps, dtype_size)
        for warps in needed
        for together in (1, 2, 4, 8)
        if together * warps <= MAX_WARPS and together <= max(1, rows // MIN_PROGRAMS)
    ]
