"""Selection of the k largest values in Triton: a sieve, then ranks by counting; one or two launches, exact for any input.

`sift_kernel` gives each of its programs a share of the array, of which it keeps what reaches a cut of its own: a little more
than the share should have of the k largest values if they are spread at random. `rank_kernel` counts for each value that is
left how many are larger: its place in the result. Counting compares all pairs, but all SMs share the work and no step waits
for another one, unlike in a sort; some 1,400 to 4,000 values are left. A short array goes straight to the last launch.

Each share also tells the largest value that it left out. What reaches the largest of these has its right place. A place among
the first k for a smaller value shows that some share has more of the k largest values than it kept, by bad luck; then the
value that belongs there is found bit by bit. The second launch may start while the first one still runs (programmatic
dependent launch).
"""

import math

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel

from tilebench_operators._triton_dependent import dependent, start_next, wait_for_previous

SHORT = 4096  # values that are ranked without a sieve
SHARE = 16384  # most values of a program of `sift_kernel`: 32 of each thread
SLOTS = 64  # room for what a share keeps
LOWEST = float("-inf")


@triton.jit
def merge(rest, count, most, other_rest, other_count, other_most):
    """Combine two maxima, sums and maxima: one reduction instead of three, of which each would wait."""
    return tl.maximum(rest, other_rest), count + other_count, tl.maximum(most, other_most)


@triton.jit(do_not_specialize=["wanted"])
def sift_kernel(
    x_ptr, rests_ptr, counts_ptr, kept_ptr, n, wanted,
    SHARES: tl.constexpr, SIZE: tl.constexpr, GROUPS: tl.constexpr, SLOTS: tl.constexpr, THREADS: tl.constexpr,
):  # fmt: skip
    """kept [SLOTS, SHARES]: what reaches a share's cut, in any order and then -inf, of each share of x [n].

    counts [SHARES]: how many; `wanted` or a few more. rests [SHARES]: the largest of the others. A share is every SHARES-th
    run of 16 neighbours, so that a sorted array has shares of equal standing. Of the largest values of the share's groups, the
    one in place `wanted` is the cut.
    """
    start_next()
    share = tl.program_id(0)
    # A thread has every THREADS-th quad of neighbours.
    number = tl.arange(0, SIZE // 4 // THREADS)[None, :, None]
    thread = tl.arange(0, THREADS)
    column = tl.arange(0, 4)[None, None, :]
    base = thread // 4 * (SHARES * 16) + share * 16 + thread % 4 * 4
    offsets = number * (THREADS // 4 * SHARES * 16) + base[:, None, None] + column
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=float("-inf"))
    largest = tl.max(tl.max(x, 1).reshape(THREADS * 4 // GROUPS, GROUPS), 0)
    larger = tl.sum((largest[:, None] > largest[None, :]).to(tl.int32), 0)
    cut = tl.min(tl.where(larger < wanted, largest, float("inf")), 0)

    # A bit for each value that a thread keeps, of which there are few.
    keep = (x >= cut) & (offsets < n)
    rest = tl.max(tl.max(tl.where(keep, float("-inf"), x), 2), 1)
    bits = tl.sum(tl.sum(tl.where(keep, 1 << (number * 4 + column), 0), 2), 1)
    pairs = bits - (bits >> 1 & 0x55555555)
    fours = (pairs & 0x33333333) + (pairs >> 2 & 0x33333333)
    own = ((fours + (fours >> 4) & 0x0F0F0F0F) * 0x01010101) >> 24
    place = tl.cumsum(own, 0) - own
    rest, count, most = tl.reduce((rest, own, own), 0, merge)
    dropped = tl.full((THREADS,), float("-inf"), tl.float32)
    for _ in range(most):
        first = bits & -bits
        bit = ((first.to(tl.float32).to(tl.int32, bitcast=True) >> 23) & 0xFF) - 127  # the float's exponent
        live = bits != 0
        offset = (bit >> 2) * (THREADS // 4 * SHARES * 16) + base + (bit & 3)
        value = tl.load(x_ptr + offset, mask=live, other=float("-inf"))
        tl.store(kept_ptr + place * SHARES + share, value, mask=live & (place < SLOTS))
        dropped = tl.maximum(dropped, tl.where(place < SLOTS, float("-inf"), value))
        bits ^= first
        place += 1
    slot = tl.arange(0, SLOTS)
    tl.store(kept_ptr + slot * SHARES + share, float("-inf"), mask=slot >= count)
    tl.store(counts_ptr + share, tl.minimum(count, SLOTS))
    if count > SLOTS:
        rest = tl.maximum(rest, tl.max(dropped, 0))
    tl.store(rests_ptr + share, rest)


@triton.jit
def value_at(x_ptr, n, place, TURN: tl.constexpr):
    """The values of x [n] in the places `place` of the descending order, bit by bit: slow, for unlucky data."""
    LEAST: tl.constexpr = -(2**31)
    key = tl.full(place.shape, LEAST, tl.int32)  # integers in the order of the floats
    step = tl.full(place.shape, LEAST, tl.int32)
    for _ in range(32):
        higher = key ^ step
        reached = tl.zeros(place.shape, tl.int32)
        for start in range(0, n, TURN):
            index = start + tl.arange(0, TURN)
            bits = tl.load(x_ptr + index, mask=index < n, other=0.0).to(tl.int32, bitcast=True)
            other = tl.where(index < n, bits ^ (bits >> 31 & 0x7FFFFFFF), LEAST)
            reached += tl.sum((other[None, :] >= higher[:, None]).to(tl.int32), 1)
        key = tl.where(reached > place, higher, key)
        step = step >> 1 & 0x7FFFFFFF
    return (key ^ (key >> 31 & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def successor(x, mask):
    """The next larger fp32 number than x where `mask` is true, and x elsewhere."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)  # not -0
    return (bits + tl.where(mask, 1 - 2 * (bits < 0).to(tl.int32), 0)).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["k"])
def short_kernel(x_ptr, y_ptr, n, k, lowest, CHUNK: tl.constexpr, TURN: tl.constexpr):
    """y [k], the largest of x [n]: a program finds the places of CHUNK values.

    Equal values are ranked by their index: for those before the chunk, "not less" instead of "greater" counts. Their
    successors among the fp32 numbers are compared, which is one comparison for all. Infinity's is a NaN, which is not
    less than or equal to anything.
    """
    first = tl.program_id(0) * CHUNK
    index = first + tl.arange(0, CHUNK)
    value = tl.load(x_ptr + index, mask=index < n, other=lowest)
    before = first + tl.arange(0, CHUNK)[None, :]
    neighbour = tl.load(x_ptr + before, mask=before < n, other=lowest)
    equal = (neighbour == value[:, None]) & (before < index[:, None])
    rank = tl.sum(equal.to(tl.int32), 1)
    for start in range(0, n, TURN):
        place = start + tl.arange(0, TURN)[None, :]
        x = tl.load(x_ptr + place, mask=place < n, other=lowest)
        larger = tl.where(successor(x, place < first) <= value[:, None], 0.0, 1.0)
        rank += tl.sum(larger, 1).to(tl.int32)
    tl.store(y_ptr + rank, value, mask=(index < n) & (rank < k))


@triton.jit(do_not_specialize=["k"])
def rank_kernel(
    x_ptr, kept_ptr, rests_ptr, counts_ptr, y_ptr, n, k, lowest,
    SHARES: tl.constexpr, CHUNK: tl.constexpr, TURN: tl.constexpr,
):  # fmt: skip
    """y [k], the largest of x [n], from kept, rests and counts of SHARES shares; as in `short_kernel`."""
    first = tl.program_id(0) * CHUNK
    index = first + tl.arange(0, CHUNK)
    before = first + tl.arange(0, CHUNK)[None, :]
    turn = tl.arange(0, TURN)[None, :]
    shares = tl.arange(0, SHARES)
    wait_for_previous()
    # The buffer is full of values or -inf: the first loads do not wait for the counts.
    other = tl.load(kept_ptr + turn)
    value = tl.load(kept_ptr + index)
    neighbour = tl.load(kept_ptr + before)
    count = tl.max(tl.load(counts_ptr + shares), 0) * SHARES
    rest = tl.max(tl.load(rests_ptr + shares), 0)
    if first >= count:
        return
    equal = (neighbour == value[:, None]) & (before < index[:, None])
    larger = tl.zeros((CHUNK, TURN), tl.float32)
    for start in range(0, count, TURN):
        # The next turn's values arrive while this turn's are compared.
        later = start + TURN + turn
        following = tl.load(kept_ptr + later, mask=later < count, other=lowest)
        larger += tl.where(successor(other, start + turn < first) <= value[:, None], 0.0, 1.0)
        other = following
    rank = tl.sum(equal.to(tl.int32), 1) + tl.sum(larger, 1).to(tl.int32)
    wanted = (index < count) & (rank < k)
    lost = wanted & (value < rest)
    if tl.max(lost.to(tl.int32), 0) > 0:
        value = tl.where(lost, value_at(x_ptr, n, rank, 256), value)
    tl.store(y_ptr + rank, value, mask=wanted)


def run(x: torch.Tensor, N: int, k: int, *, SHARES: int, CHUNK: int, TURN: int, num_warps: int) -> torch.Tensor:
    """Return the k largest of x [N], in descending order; SHARES shares, or more of a large array or for a large k."""
    y = torch.empty(k, dtype=x.dtype, device=x.device)
    common = {"CHUNK": CHUNK, "TURN": TURN, "num_warps": num_warps}
    if N <= SHORT:
        short_kernel[(triton.cdiv(N, CHUNK),)](x, y, N, k, LOWEST, **common)
        return y
    shares = max(SHARES, triton.next_power_of_2(triton.cdiv(k, 16)), triton.next_power_of_2(N) // SHARE)
    size = max(128, triton.next_power_of_2(triton.cdiv(N, shares)))
    # The largest k values are spread over the shares as by throwing dice: k / shares, and four standard deviations.
    wanted = max(16, math.ceil(k / shares + 4 * math.sqrt(k / shares) + 4))
    rests = torch.empty(shares, dtype=x.dtype, device=x.device)
    counts = torch.empty(shares, dtype=torch.int32, device=x.device)
    kept = torch.empty(SLOTS * shares, dtype=x.dtype, device=x.device)  # TURN divides it
    warps = min(16, max(4, size // 512))
    sift_kernel[(shares,)](
        x, rests, counts, kept, N, wanted,
        SHARES=shares, SIZE=size, GROUPS=64 if wanted <= 16 else 128, SLOTS=SLOTS, THREADS=min(32 * warps, size // 4),
        num_warps=warps,
    )  # fmt: skip
    rank_kernel[(triton.cdiv(SLOTS * shares, CHUNK),)](
        x, kept, rests, counts, y, N, k, LOWEST, SHARES=shares, **common, **dependent()
    )
    return y


def default(case: Case) -> Config:
    if case["N"] <= SHORT:
        return {"SHARES": 64, "CHUNK": 8, "TURN": 4096, "num_warps": 4}
    # Fewer shares keep fewer values too many, but of a large array each of them takes longer.
    large = case["N"] > 1 << 18
    return {"SHARES": 256 if large else 64, "CHUNK": 8 if large or case["k"] > 256 else 4, "TURN": 512, "num_warps": 4}


def space(case: Case) -> list[Config]:
    if case["N"] <= SHORT:
        return [
            {"SHARES": 64, "CHUNK": chunk, "TURN": turn, "num_warps": warps}
            for chunk, warps in ((4, 4), (8, 4), (8, 8), (16, 8))
            for turn in (1024, 2048, 4096)
        ]
    return [
        {"SHARES": shares, "CHUNK": chunk, "TURN": turn, "num_warps": warps}
        for shares in (64, 128, 256)
        for chunk, warps in ((4, 4), (8, 4), (8, 8), (16, 8))
        for turn in (512, 1024)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
