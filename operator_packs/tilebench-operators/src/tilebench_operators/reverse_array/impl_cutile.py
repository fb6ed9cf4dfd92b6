"""Reversal of an array in cuTile: 16-byte vectors are read in reverse order and flipped inside each thread.

Reading single elements backwards would leave 1- and 2-byte types with 1- and 2-byte accesses. Here a row of the tile is
one vector: its address decreases from row to row, but inside it runs forwards, so that it is one load.
"""

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel


def flip(t, ROWS: int, VECTOR: int):
    """Reverse the rows of t [ROWS, VECTOR]: exchange their halves, then the halves of the halves, and so on."""
    for level in ct.static_iter(range(VECTOR.bit_length() - 1)):
        shape = ct.static_eval((ROWS, 1 << level, 1, VECTOR >> (level + 1)))
        halves = t.reshape(ct.static_eval((ROWS, 1 << level, 2, VECTOR >> (level + 1))))
        t = ct.cat((ct.extract(halves, (0, 0, 1, 0), shape), ct.extract(halves, (0, 0, 0, 0), shape)), 2)
        t = t.reshape((ROWS, VECTOR))
    return t


@ct.kernel
def reverse_kernel(x, out, n, ROWS: ct.Constant[int], VECTOR: ct.Constant[int], ALIGNED: ct.Constant[bool]):
    """Write ROWS·VECTOR elements of out [n]. ALIGNED: n is a multiple of VECTOR."""
    i = ct.bid(0)
    last = i * ROWS + ct.arange(ROWS, dtype=ct.int32) + 1
    end = ct.assume_divisible_by(n, VECTOR) if ALIGNED else n
    # The mirror image of row r is the row that starts at n - (r + 1)·VECTOR. Where n is no multiple of VECTOR, the last
    # row reaches below 0; those are the elements whose flipped place is beyond n.
    mirrored = end - last[:, None] * VECTOR + ct.arange(VECTOR, dtype=ct.int32)[None, :]
    t = x.get_raw_memory().load_offset(mirrored, mask=mirrored >= 0, padding_value=0)
    ct.store(out, (i,), flip(t, ROWS, VECTOR).reshape((ROWS * VECTOR,)))


def run(x: torch.Tensor, *, ROWS: int) -> torch.Tensor:
    """Return x [n] in reverse order; a block reverses ROWS vectors of 16 bytes."""
    out = torch.empty_like(x)
    n, vector = x.numel(), 16 // x.element_size()
    arguments = (x, out, n, ROWS, vector, n % vector == 0)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(n, ROWS * vector),), reverse_kernel, arguments)
    return out


def default(case: Case) -> Config:
    return {"ROWS": 256}  # two vectors per thread


def space(case: Case) -> list[Config]:
    return [{"ROWS": rows} for rows in (128, 256, 512, 1024)]


KERNEL = Kernel(run=run, default=default, space=space)
