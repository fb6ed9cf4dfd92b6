"""One Jacobi sweep in cuTile: wide loads, and left and right neighbours taken from registers.

A tile is seen as quads of four neighbouring points, so two of their left and right neighbours out of three lie in the
quad already; only the two outermost are loaded beside them. Rows above and below are full tiles again: they come from
L1, as the tile's own rows do for its neighbours.
"""

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

ZERO = ct.PaddingMode.ZERO


def column(quads, i, ROWS, LANES):
    """Column i of every quad: [ROWS, LANES, 4] -> [ROWS, LANES, 1]."""
    return ct.extract(quads, (0, 0, i), (ROWS, LANES, 1))


@ct.kernel
def sweep_kernel(x, out, ROWS: ct.Constant[int], LANES: ct.Constant[int]):
    """One block, ROWS rows of 4·LANES points, from row 1 on; x and out [rows, cols].

    Sums are rounded in the arrays' type, one by one. Neighbours that do not exist are replaced by others that do: on the
    border the result is not used.
    """
    rows, cols = x.shape[0], x.shape[1]
    i, j = ct.bid(1), ct.bid(0)
    # Steps of one row: a tile may start in any row that exists. Row 0 is apart, so that the row above always does.
    tiles = x.tiled_view((ROWS, 4 * LANES), padding_mode=ZERO, traversal_steps=(1, 4 * LANES))
    top = ct.minimum(i * ROWS + 1, rows - 1)
    centre = tiles.load((top, j), allow_tma=False)
    up = tiles.load((ct.maximum(top - 1, 0), j), allow_tma=False)
    down = tiles.load((ct.minimum(top + 1, rows - 1), j), allow_tma=False)
    row = top + ct.arange(ROWS, dtype=ct.int32)
    points = j * (4 * LANES) + ct.arange(4 * LANES, dtype=ct.int32)
    quad = j * (4 * LANES) + 4 * ct.arange(LANES, dtype=ct.int32)
    line = ct.minimum(row, rows - 1)[:, None]
    before = ct.gather(x, (line, ct.minimum(ct.maximum(quad - 1, 0), cols - 1)[None, :]), check_bounds=False)
    after = ct.gather(x, (line, ct.minimum(quad + 4, cols - 1)[None, :]), check_bounds=False)

    quads = centre.reshape((ROWS, LANES, 4))
    c0, c1 = column(quads, 0, ROWS, LANES), column(quads, 1, ROWS, LANES)
    c2, c3 = column(quads, 2, ROWS, LANES), column(quads, 3, ROWS, LANES)
    before, after = before.reshape((ROWS, LANES, 1)), after.reshape((ROWS, LANES, 1))
    left = ct.cat((ct.cat((before, c0), 2), ct.cat((c1, c2), 2)), 2).reshape((ROWS, 4 * LANES))
    right = ct.cat((ct.cat((c1, c2), 2), ct.cat((c3, after), 2)), 2).reshape((ROWS, 4 * LANES))

    inner = ((row > 0) & (row < rows - 1))[:, None] & ((points > 0) & (points < cols - 1))[None, :]
    total = up + down + left + right
    results = out.tiled_view((ROWS, 4 * LANES), traversal_steps=(1, 4 * LANES))
    results.store((top, j), ct.where(inner, total * 0.25, centre), allow_tma=False)
    if i == 0:
        ct.store(out, (0, j), ct.load(x, (0, j), (1, 4 * LANES), allow_tma=False), allow_tma=False)


def run(input: torch.Tensor, rows: int, cols: int, *, ROWS: int, LANES: int) -> torch.Tensor:
    """Return the sweep of input [rows, cols] in its dtype."""
    out = torch.empty_like(input)
    grid = (ct.cdiv(cols, 4 * LANES), max(1, ct.cdiv(rows - 1, ROWS)))
    ct.launch(torch.cuda.current_stream(), grid, sweep_kernel, (input, out, ROWS, LANES))
    return out


def default(case: Case) -> Config:
    # A warp reads 128 neighbouring points; a taller tile reads fewer rows twice, but leaves fewer blocks.
    return {"ROWS": 4 if case["rows"] <= 1024 else 8, "LANES": 64}


def space(case: Case) -> list[Config]:
    return [
        {"ROWS": rows, "LANES": lanes}
        for rows in (2, 4, 8, 16)
        for lanes in (32, 64, 128)
        if 128 <= rows * lanes <= 1024
    ]


KERNEL = Kernel(run=run, default=default, space=space)
