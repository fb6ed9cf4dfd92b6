"""How a bitonic network is cut into passes over memory.

Merge k joins two sorted runs of 2^(k-1) elements by stages that compare partners at distance 2^(k-1), ..., 2, 1: of bits
k - 1, ..., 0 of the index. A pass reads and writes tiles of 2^SLICE elements and runs all stages of bits that lie in a tile.
"""

from typing import NamedTuple


class Pass(NamedTuple):
    """The last `tail` stages of a merge, then `head` ones of bits shift + head - 1, ..., shift.

    The latter are stages of merge k, its first ones if `first`; without them k is the merge of the tail. A tile has 2^head
    rows at distance 2^shift.
    """

    k: int
    tail: int
    head: int
    shift: int
    first: bool


def plan(bits: int, SLICE: int, ROW: int) -> list[Pass]:
    """The merges SLICE + 1, ..., bits. A tile's rows have at least 2^ROW elements, neighbours in memory."""
    passes = []
    k = left = SLICE + 1  # merge k has `left` stages left
    while k <= bits:
        tail = left if left <= SLICE else 0
        if tail == SLICE or (tail and k == bits):
            passes.append(Pass(k, tail, 0, SLICE, False))
            k = left = k + 1
            continue
        if tail:
            k = left = k + 1
        head = min(SLICE - max(tail, ROW), left)
        left -= head
        passes.append(Pass(k, tail, head, left, left + head == k))
    return passes
