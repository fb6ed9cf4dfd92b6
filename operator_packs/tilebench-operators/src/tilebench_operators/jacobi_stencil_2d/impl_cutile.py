"""One Jacobi sweep in cuTile: a lane walks down the columns of one 16-byte load, which are almost all it reads of a row.

Every row of a strip is loaded once, and is the row below, the row itself and the row above in turn. Of the left and right
neighbours only the two outermost are loaded beside it, from L1. A point that lies outside is replaced by one that doesn't,
since on the border the result is not used: so no load needs a mask, and all rows of a lane are on their way together.
Offsets that are multiples of VEC in the code's own arithmetic become 16-byte loads; rows that are no whole number of them
go one column per lane.
"""

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel


def shifted_right(tile, before, LANES, VEC):
    """[before, tile without its last column]: tile [LANES, VEC], before [LANES, 1]; VEC 1, 4 or 8."""
    result = before
    if VEC >= 4:
        first = ct.cat((before, ct.extract(tile, (0, 0), (LANES, 1))), 1)
        second = ct.cat((ct.extract(tile, (0, 1), (LANES, 1)), ct.extract(tile, (0, 2), (LANES, 1))), 1)
        result = ct.cat((first, second), 1)
    if VEC == 8:
        third = ct.cat((ct.extract(tile, (0, 3), (LANES, 1)), ct.extract(tile, (0, 4), (LANES, 1))), 1)
        fourth = ct.cat((ct.extract(tile, (0, 5), (LANES, 1)), ct.extract(tile, (0, 6), (LANES, 1))), 1)
        result = ct.cat((result, ct.cat((third, fourth), 1)), 1)
    return result


def shifted_left(tile, after, LANES, VEC):
    """[tile without its first column, after]."""
    result = after
    if VEC == 4:
        first = ct.cat((ct.extract(tile, (0, 1), (LANES, 1)), ct.extract(tile, (0, 2), (LANES, 1))), 1)
        result = ct.cat((first, ct.cat((ct.extract(tile, (0, 3), (LANES, 1)), after), 1)), 1)
    if VEC == 8:
        first = ct.cat((ct.extract(tile, (0, 1), (LANES, 1)), ct.extract(tile, (0, 2), (LANES, 1))), 1)
        second = ct.cat((ct.extract(tile, (0, 3), (LANES, 1)), ct.extract(tile, (0, 4), (LANES, 1))), 1)
        third = ct.cat((ct.extract(tile, (0, 5), (LANES, 1)), ct.extract(tile, (0, 6), (LANES, 1))), 1)
        fourth = ct.cat((ct.extract(tile, (0, 7), (LANES, 1)), after), 1)
        result = ct.cat((ct.cat((first, second), 1), ct.cat((third, fourth), 1)), 1)
    return result


@ct.kernel
def sweep_kernel(x, out, rows, loads, lanes, ROWS: ct.Constant[int], VEC: ct.Constant[int], LANES: ct.Constant[int]):
    """One block, LANES strips of ROWS rows of VEC points; x and out [rows·loads·VEC], below 2^31 elements.

    The strips, `lanes` in all, are counted along a row first. Sums are rounded in the arrays' type, one by one.
    """
    number = ct.bid(0) * LANES + ct.arange(LANES, dtype=ct.int32)
    lane = ct.minimum(number, lanes - 1)
    load, top = lane % loads, lane // loads * ROWS
    source, target = x.get_raw_memory(), out.get_raw_memory()
    vector = ct.arange(VEC, dtype=ct.int32)[None, :]
    before, after = ct.where(load > 0, -1, 0), ct.where(load < loads - 1, VEC, VEC - 1)

    # Ahead of every store, which the compiler does not move loads across.
    lines, befores, afters = (), (), ()
    for r in ct.static_iter(range(ROWS + 2)):
        row = ct.maximum(ct.minimum(top + (r - 1), rows - 1), 0)
        at = (row * loads + load) * VEC
        lines = (*lines, source.load_offset(at[:, None] + vector))
        if r >= 1 and r <= ROWS:
            befores = (*befores, source.load_offset(at + before)[:, None])
            afters = (*afters, source.load_offset(at + after)[:, None])
    point = load[:, None] * VEC + vector
    inner = (point > 0) & (point < loads * VEC - 1)
    for r in ct.static_iter(range(ROWS)):
        row = top + r
        centre = lines[r + 1]
        left = shifted_right(centre, befores[r], LANES, VEC)
        right = shifted_left(centre, afters[r], LANES, VEC)
        total = lines[r] + lines[r + 2] + left + right
        result = ct.where(inner & ((row > 0) & (row < rows - 1))[:, None], total * 0.25, centre)
        at = (row * loads + load) * VEC
        target.store_offset(at[:, None] + vector, result, mask=((number < lanes) & (row < rows))[:, None])


def run(input: torch.Tensor, rows: int, cols: int, *, ROWS: int, LANES: int) -> torch.Tensor:
    """Return the sweep of input [rows, cols] in its dtype."""
    out = torch.empty_like(input)
    width = 16 // input.element_size()
    vec = width if cols % width == 0 and input.data_ptr() % 16 == 0 else 1
    lanes = ct.cdiv(rows, ROWS) * (cols // vec)
    arguments = (input.view(-1), out.view(-1), rows, cols // vec, lanes, ROWS, vec, LANES)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(lanes, LANES),), sweep_kernel, arguments)
    return out


def default(case: Case) -> Config:
    # Longer strips re-read fewer rows (2 per strip) but leave fewer lanes.
    return {"ROWS": 2 if case["rows"] <= 1024 else 4, "LANES": 128}


def space(case: Case) -> list[Config]:
    return [{"ROWS": rows, "LANES": lanes} for rows in (1, 2, 3, 4, 6, 8) for lanes in (128, 256)]


KERNEL = Kernel(run=run, default=default, space=space)
