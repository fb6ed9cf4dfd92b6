"""Matrix transposition in Triton: a tile is read along rows and written along columns, through shared memory.

Loads and stores both move 16 bytes per thread; `tl.trans` only renames the axes, and the compiler exchanges the
elements between the threads in shared memory before the store.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def transpose_kernel(x_ptr, out_ptr, m, n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    """One tile of x [m, n] to out [n, m]."""
    # Neighbouring programs share the rows of out: their writes complete each other's DRAM pages.
    rows = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    columns = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    mask = (rows < m)[:, None] & (columns < n)[None, :]
    tile = tl.load(x_ptr + rows.to(tl.int64)[:, None] * n + columns[None, :], mask=mask)
    out_mask = (columns < n)[:, None] & (rows < m)[None, :]
    tl.store(out_ptr + columns.to(tl.int64)[:, None] * m + rows[None, :], tl.trans(tile), mask=out_mask)


def run(x: torch.Tensor, *, TILE_M: int, TILE_N: int, num_warps: int) -> torch.Tensor:
    """Return x [m, n] transposed, contiguous [n, m]."""
    m, n = x.shape
    out = torch.empty((n, m), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(m, TILE_M), triton.cdiv(n, TILE_N))
    transpose_kernel[grid](x, out, m, n, TILE_M=TILE_M, TILE_N=TILE_N, num_warps=num_warps)
    return out


def default(case: Case) -> Config:
    # A row of the tile is at least 64 bytes on both sides, and a thread has two to four 16-byte loads in flight.
    tile = 128 if case.dtype_size == 1 else 64
    return {"TILE_M": tile, "TILE_N": tile, "num_warps": 8 if case.dtype_size != 2 else 4}


def space(case: Case) -> list[Config]:
    tiles = [(64, 64), (64, 128), (128, 64), (128, 128)]
    tiles += [(128, 256), (256, 128)] if case.dtype_size == 1 else [(32, 64), (64, 32)]
    return [{"TILE_M": tm, "TILE_N": tn, "num_warps": warps} for tm, tn in tiles for warps in (2, 4, 8)]


KERNEL = Kernel(run=run, default=default, space=space)
