"""Bitonic sort: the values of data in ascending order.

Inputs: data [N] in the case's dtype, N(0, 1), and N as a number. Output: [N] in the same dtype; values only move.
The kernels run the bitonic network over the next power of two M = 2^L: for k = 2, 4, ..., M, and for every distance
j = k/2, k/4, ..., 1, partners at that distance are put in order, L(L+1)/2 stages in all.
F = 0 (comparisons only), Q = 2·N·s, the compulsory traffic.
"""

import torch
from tilebench_core import Case, Definition, Draw


def inputs(case: Case, draw: Draw) -> tuple[torch.Tensor, int]:
    """Return data [N] and N."""
    return draw.normal(case["n"], dtype=case.dtype), case["n"]


OPERATOR = Definition(inputs=inputs)
