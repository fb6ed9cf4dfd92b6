"""Matrix transposition in cuTile: a tile is read along rows and written along columns.

Loads and stores both move 16 bytes per thread, so elements have to change threads in shared memory on the way. One by one
(`ct.transpose`) they would collide in its banks. Here a thread first collects the same columns of VECTOR consecutive rows,
and puts each column together in its registers; what goes through shared memory is whole 16-byte vectors of the result.
"""

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel


@ct.kernel
def transpose_kernel(x, out, GROUPS: ct.Constant[int], COLS: ct.Constant[int], VECTOR: ct.Constant[int]):
    """One tile of x [m/VECTOR, VECTOR, n] to out [n, m]. What lies beyond the edge is never stored."""
    # Neighbouring blocks share the rows of out: their writes complete each other's DRAM pages.
    i, j = ct.bid(0), ct.bid(1)
    tiles = ()
    for row in ct.static_iter(range(VECTOR)):
        tile = ct.load(x, (i, row, j), (GROUPS, 1, COLS), allow_tma=False)
        tiles += (tile.reshape((GROUPS, COLS, 1)),)
    for level in ct.static_iter(range(VECTOR.bit_length() - 1)):
        pairs = ()
        for pair in ct.static_iter(range(VECTOR >> (level + 1))):
            pairs += (ct.cat((tiles[2 * pair], tiles[2 * pair + 1]), 2),)
        tiles = pairs
    result = ct.permute(tiles[0], (1, 0, 2)).reshape((COLS, GROUPS * VECTOR))
    ct.store(out, (j, i), result, allow_tma=False)


def run(x: torch.Tensor, *, ROWS: int, COLS: int) -> torch.Tensor:
    """Return x [m, n] transposed, contiguous [n, m]."""
    m, n = x.shape
    out = torch.empty((n, m), dtype=x.dtype, device=x.device)
    VECTOR = 16 // x.element_size()
    if m % VECTOR:
        VECTOR = 1  # rows of out that do not keep 16-byte vectors aligned
    arguments = (x.view(m // VECTOR, VECTOR, n), out, ROWS // VECTOR, COLS, VECTOR)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(m, ROWS), ct.cdiv(n, COLS)), transpose_kernel, arguments)
    return out


def default(case: Case) -> Config:
    # Rows of at least 128 bytes on both sides, and eight 16-byte loads in flight per thread.
    if case.dtype_size == 4:
        return {"ROWS": 64, "COLS": 64}
    return {"ROWS": 128 // case.dtype_size, "COLS": 128}


def space(case: Case) -> list[Config]:
    tiles = [(32, 64), (64, 32), (64, 64), (64, 128), (128, 64)]
    tiles += [(128, 128)] if case.dtype_size < 4 else []
    tiles += [(128, 256), (256, 128)] if case.dtype_size == 1 else []
    return [{"ROWS": rows, "COLS": cols} for rows, cols in tiles]


KERNEL = Kernel(run=run, default=default, space=space)
