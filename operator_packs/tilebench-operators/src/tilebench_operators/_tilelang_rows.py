"""Layout and configurations of the TileLang kernels that reduce rows: some keep them on chip, others stream through.

Kept on chip: a block of `threads` takes ROWS rows, and each row belongs to `threads / ROWS` neighbouring threads, a power of two.
By itself the compiler would spread every row over the whole block, and reductions would cost a block-wide exchange per
row. With 32 threads per row or fewer they are shuffles inside a warp, without shared memory and barriers.
The tile's width BLOCK need not be a power of two: it is the shortest multiple of one 16-byte access per thread that
holds a row.
Streamed: a block takes one row, in chunks of BLOCK columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilebench_core import Config

__all__ = ["row_default", "row_layout", "row_space", "stream_default", "stream_space", "vector_width"]

MAX_PER_THREAD = 64  # elements of the rows; as fp32 they take half of the registers that two blocks per SM may have
GOOD_PER_THREAD = 48
MAX_WARPS = 16
MIN_BLOCKS = 264  # two for each SM of a large GPU

STREAM_BYTES = 160  # of a row per thread; more of them, and the last blocks keep the GPU waiting
STREAM_MIN_THREADS = 132 * 1024  # half of what a large GPU holds


def vector_width(cols: int, dtype_size: int) -> int:
    """Elements per access to rows of `cols` elements: 16 bytes if every row starts at a multiple of that, else one."""
    width = 16 // dtype_size
    return width if cols % width == 0 else 1


def row_layout(ROWS: int, VEC: int, threads: int) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Return the map of a tile's element (i, j) to its thread and to its place in that thread's registers.

    Accesses are VEC wide, and the threads of a row lie side by side in each of them.
    """
    group = threads // ROWS
    return lambda i, j: (i * group + j // VEC % group, j // (VEC * group) * VEC + j % VEC)


def _config(together: int, warps_per_row: int, cols: int, dtype_size: int) -> Config:
    step = warps_per_row * 32 * (16 // dtype_size)
    return {"ROWS": together, "BLOCK": -(-cols // step) * step, "threads": 32 * together * warps_per_row}


def _long_config(block: int, threads: int) -> Config:
    return {"ROWS": 1, "BLOCK": block, "threads": threads}


def row_default(rows: int, cols: int, dtype_size: int, good_per_thread: int = GOOD_PER_THREAD) -> Config:
    """The configuration for [rows, cols]: as few warps per row as hold it well, with up to `good_per_thread` elements
    in each thread, and short rows together; rows that no block can hold go in chunks."""
    if cols > MAX_PER_THREAD * 32 * MAX_WARPS:
        return _long_config(4096, 256)
    warps = 1
    while warps < MAX_WARPS and cols > good_per_thread * 32 * warps:
        warps *= 2
    together = max(1, 4 // warps)
    while together > 1 and rows < MIN_BLOCKS * together:
        together //= 2
    return _config(together, warps, cols, dtype_size)


def row_space(rows: int, cols: int, dtype_size: int) -> list[Config]:
    """All sensible numbers of warps per row, each with one or more rows per block; of long rows, chunks and threads."""
    if cols > MAX_PER_THREAD * 32 * MAX_WARPS:
        return [_long_config(block, threads) for block in (4096, 8192) for threads in (128, 256, 512)]
    needed = [w for w in (1, 2, 4, 8, 16) if 8 * 32 * w <= max(cols, 256) and cols <= MAX_PER_THREAD * 32 * w]
    return [
        _config(together, warps, cols, dtype_size)
        for warps in needed
        for together in (1, 2, 4, 8)
        if together * warps <= MAX_WARPS and together <= max(1, rows // MIN_BLOCKS)
    ]


def stream_default(rows: int, cols: int, dtype_size: int) -> Config:
    """The configuration that streams through [rows, cols]: two 16-byte accesses of each thread per chunk."""
    width = 16 // dtype_size
    threads = 64
    while threads < 512 and 2 * threads * width <= cols:
        if threads * STREAM_BYTES >= cols * dtype_size and threads * rows >= STREAM_MIN_THREADS:
            break
        threads *= 2
    return {"BLOCK": 2 * threads * width, "threads": threads}


def stream_space(cols: int, dtype_size: int) -> list[Config]:
    """One, two or four 16-byte accesses per thread and chunk, with every number of threads that a row keeps busy."""
    width = 16 // dtype_size
    return [
        {"BLOCK": accesses * threads * width, "threads": threads}
        for threads in (32, 64, 128, 256, 512)
        for accesses in (1, 2, 4)
        if threads == 32 or accesses * threads * width < 2 * cols
    ]
