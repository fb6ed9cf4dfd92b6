"""Softmax in the example DSL: a tile of ROWS whole rows, each padded to a power of two with -inf."""

import torch
from tilebench_example.tiles import kernel

from tilebench_core import Case, Config, Kernel


@kernel
def softmax_rows(program, x, y, *, ROWS, COLS):
    """x and y are [rows, cols]; COLS >= cols."""
    import numpy as np

    tile = program.load(x, (program.id(0), 0), (ROWS, COLS), padding=float("-inf")).astype(np.float32)
    with np.errstate(invalid="ignore"):  # rows beyond the last one are -inf throughout, and are not stored
        numerator = np.exp(tile - tile.max(axis=1, keepdims=True))
    program.store(y, (program.id(0), 0), numerator / numerator.sum(axis=1, keepdims=True))


def run(x: torch.Tensor, *, ROWS: int) -> torch.Tensor:
    """Return the softmax of x [rows, cols] over its last axis, in x's dtype."""
    y = torch.empty_like(x)
    rows, cols = x.shape
    softmax_rows.launch((-(-rows // ROWS),), x.numpy(), y.numpy(), ROWS=ROWS, COLS=1 << (cols - 1).bit_length())
    return y


def default(case: Case) -> Config:
    return {"ROWS": 16}


def space(case: Case) -> list[Config]:
    return [{"ROWS": rows} for rows in (1, 4, 16, 64)]


KERNEL = Kernel(run=run, default=default, space=space)
