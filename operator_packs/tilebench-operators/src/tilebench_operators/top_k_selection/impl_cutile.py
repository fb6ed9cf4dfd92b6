"""Selection of the k largest values in cuTile: a sieve, then ranks by counting; one or two launches, exact for any input.

`sift_kernel` gives each of its blocks a share of the array, of which it keeps what reaches a cut of its own: a little more
than the share should have of the k largest values if they are spread at random. `rank_kernel` counts for each value that is
left how many are larger: its place in the result. Counting compares all pairs, but all SMs share the work and no step waits
for another one, unlike in a sort; some 1,400 to 4,000 values are left. A short array goes straight to ranks.

Each share also tells the largest value that it left out. What reaches the largest of these has its right place. A place among
the first k for a smaller value shows that some share has more of the k largest values than it kept, by bad luck; then the
value that belongs there is found bit by bit. The second launch may start while the first one still runs (programmatic
dependent launch): its blocks are there when they can begin.
"""

import functools
import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._cutile_dependent import launch_dependent

SHORT = 4096  # values that are ranked without a sieve
SHARE = 8192  # most values of a block of `sift_kernel`: 32 of each thread
SLOTS = 64  # room for what a share keeps
GROUPS = 128  # of a share: one vector of 16 bytes for each thread of a warp, so that bisection needs no barrier
LEAST = -(2**31)
SEARCH = 256  # values at once where one is found bit by bit


def merge(rest, count, most, other_rest, other_count, other_most):
    """Combine two maxima, sums and maxima: one reduction instead of three, of which each would wait."""
    return ct.maximum(rest, other_rest), count + other_count, ct.maximum(most, other_most)


@ct.kernel
def sift_kernel(
    x, runs, rests, counts, kept, n, wanted,
    SHARES: ct.Constant[int], SIZE: ct.Constant[int], GROUPS: ct.Constant[int], SLOTS: ct.Constant[int],
    THREADS: ct.Constant[int], WHOLE: ct.Constant[bool],
):  # fmt: skip
    """kept [SLOTS, SHARES]: what reaches a share's cut, in any order and then -inf, of each share of x [n].

    counts [SHARES]: how many; `wanted` or a few more. rests [SHARES]: the largest of the others. A share is every SHARES-th
    run of 16 neighbours, so that a sorted array has shares of equal standing. The largest values of `wanted` of its groups, or
    of a few more, reach its cut. WHOLE: runs [n / SHARES / 16, SHARES, 16] is x, each share has SIZE values.
    """
    ct.grid_dependency_control_launch_dependents()
    share = ct.bid(0)
    QUADS = SIZE // 4 // THREADS
    STEP = THREADS // 4 * SHARES * 16
    memory = x.get_raw_memory()
    # A thread has every THREADS-th quad of neighbours.
    number = ct.arange(QUADS, dtype=ct.int32).reshape((QUADS, 1, 1))
    thread = ct.arange(THREADS, dtype=ct.int32)
    column = ct.arange(4, dtype=ct.int32).reshape((1, 1, 4))
    base = thread // 4 * (SHARES * 16) + share * 16 + thread % 4 * 4
    if WHOLE:
        t = ct.load(runs, (0, share, 0), (SIZE // 16, 1, 16), check_bounds=False, allow_tma=False)
        t = t.reshape((QUADS, THREADS, 4))
    else:
        offsets = number * STEP + base.reshape((1, THREADS, 1)) + column
        t = memory.load_offset(offsets, mask=offsets < n, padding_value=-math.inf)
    largest = ct.max(ct.max(t, 0).reshape((THREADS * 4 // GROUPS, GROUPS)), 0)
    # Bisection among integers in the order of the floats: `reached` of them are at least `low`, fewer than `wanted` at least `high`.
    keys = ct.bitcast(largest, ct.int32)
    keys = keys ^ (keys >> 31 & 0x7FFFFFFF)
    low, high, reached = ct.min(keys), ct.max(keys) + 1, GROUPS
    while (reached > wanted + wanted // 16) & (low + 1 < high):
        middle = (low & high) + ((low ^ high) >> 1)
        above = ct.sum((keys >= middle).astype(ct.int32))
        enough = above >= wanted
        reached = ct.where(enough, above, reached)
        low, high = ct.where(enough, middle, low), ct.where(enough, high, middle)
    cut = ct.bitcast(low ^ (low >> 31 & 0x7FFFFFFF), ct.float32)

    # A bit for each value that a thread keeps, of which there are few.
    keep = t >= cut if WHOLE else (t >= cut) & (offsets < n)
    rest = ct.max(ct.max(ct.where(keep, -math.inf, t), 2), 0)
    bits = ct.sum(ct.sum(ct.where(keep, 1 << (number * 4 + column), 0), 2), 0)
    pairs = bits - (bits >> 1 & 0x55555555)
    fours = (pairs & 0x33333333) + (pairs >> 2 & 0x33333333)
    own = ((fours + (fours >> 4) & 0x0F0F0F0F) * 0x01010101) >> 24
    place = ct.cumsum(own) - own
    rest, count, most = ct.reduce((rest, own, own), 0, merge, (-math.inf, 0, 0))
    dropped = ct.full((THREADS,), -math.inf, ct.float32)
    for _ in range(most):
        first = bits & -bits
        bit = (ct.bitcast(first.astype(ct.float32), ct.int32) >> 23 & 0xFF) - 127  # the float's exponent
        live = bits != 0
        value = memory.load_offset((bit >> 2) * STEP + base + (bit & 3), mask=live, padding_value=-math.inf)
        kept.get_raw_memory().store_offset(place * SHARES + share, value, mask=live & (place < SLOTS))
        dropped = ct.maximum(dropped, ct.where(place < SLOTS, -math.inf, value))
        bits = bits ^ first
        place = place + 1
    slot = ct.arange(SLOTS, dtype=ct.int32)
    kept.get_raw_memory().store_offset(slot * SHARES + share, -math.inf, mask=slot >= count)
    if count > SLOTS:
        rest = ct.maximum(rest, ct.max(dropped))
    ct.store(counts, (share,), ct.minimum(count, SLOTS).reshape((1,)), allow_tma=False)
    ct.store(rests, (share,), rest.reshape((1,)), allow_tma=False)


def successor(x, mask):
    """The next larger fp32 number than x where `mask` is true, and x elsewhere."""
    bits = ct.bitcast(x, ct.int32)
    bits = ct.where((bits & 0x7FFFFFFF) == 0, 0, bits)  # not -0
    return ct.bitcast(bits + ct.where(mask, ct.where(bits < 0, -1, 1), 0), ct.float32)


@ct.kernel(occupancy=4)  # as many blocks as SHORT values have, at once
def short_kernel(x, y, n, k, CHUNK: ct.Constant[int], TURN: ct.Constant[int], WHOLE: ct.Constant[bool]):
    """y [k], the largest of x [n]: a block finds the places of CHUNK values.

    Equal values are ranked by their index: for those before the chunk, "not less" instead of "greater" counts. Their
    successors among the fp32 numbers are compared, which is one comparison for all. Infinity's is a NaN, which is not
    less than or equal to anything. WHOLE: TURN divides n, and loads are 16 bytes wide.
    """
    memory = x.get_raw_memory()
    lanes = ct.arange(CHUNK, dtype=ct.int32)
    for first in range(ct.bid(0) * CHUNK, n, ct.num_blocks(0) * CHUNK):
        index = first + lanes
        value = memory.load_offset(index, mask=index < n, padding_value=-math.inf)
        equal = (value[None, :] == value[:, None]) & (lanes[None, :] < lanes[:, None])
        rank = ct.sum(equal.astype(ct.int32), 1)
        least = 0
        for start in range(0, n, TURN):
            if least < k:  # no more turns than the chunk's largest value needs
                place = start + ct.arange(TURN, dtype=ct.int32)
                if WHOLE:
                    others = ct.load(x, (start // TURN,), (TURN,), check_bounds=False, allow_tma=False)
                else:
                    others = memory.load_offset(place, mask=place < n, padding_value=-math.inf)
                larger = ct.where(successor(others, place < first)[None, :] <= value[:, None], 0.0, 1.0)
                rank += ct.sum(larger, 1).astype(ct.int32)
                if start + TURN < n:
                    least = ct.min(rank)
        y.get_raw_memory().store_offset(rank, value, mask=(index < n) & (rank < k))


@ct.kernel
def rank_kernel(
    x, kept, rests, counts, y, n, k, SHARES: ct.Constant[int], CHUNK: ct.Constant[int], TURN: ct.Constant[int]
):  # fmt: skip
    """y [k], the largest of x [n], from kept, rests and counts of SHARES shares; as in `short_kernel`."""
    ct.grid_dependency_control_wait()
    # kept is full of values or -inf: the first loads do not wait for the counts.
    others = ct.load(kept, (0,), (TURN,), check_bounds=False, allow_tma=False)
    value = ct.load(kept, (ct.bid(0),), (CHUNK,), check_bounds=False, allow_tma=False)
    count = ct.max(ct.load(counts, (0,), (SHARES,), check_bounds=False, allow_tma=False)) * SHARES
    rest = ct.max(ct.load(rests, (0,), (SHARES,), check_bounds=False, allow_tma=False))
    lanes = ct.arange(CHUNK, dtype=ct.int32)
    first = ct.bid(0) * CHUNK
    if first < count:
        equal = (value[None, :] == value[:, None]) & (lanes[None, :] < lanes[:, None])
        larger = ct.zeros((CHUNK, TURN), ct.float32)
        turns = ct.cdiv(count, TURN)
        for turn in range(turns):
            # The next turn's values arrive while this turn's are compared.
            later = ct.minimum(turn + 1, turns - 1)
            following = ct.load(kept, (later,), (TURN,), check_bounds=False, allow_tma=False)
            place = turn * TURN + ct.arange(TURN, dtype=ct.int32)
            larger += ct.where(successor(others, place < first)[None, :] <= value[:, None], 0.0, 1.0)
            others = following
        rank = ct.sum(equal.astype(ct.int32), 1) + ct.sum(larger, 1).astype(ct.int32)
        wanted = (first + lanes < count) & (rank < k)
        lost = wanted & (value < rest)
        if ct.max(lost.astype(ct.int32)) > 0:
            # The values in the places `rank` of the descending order of x: integers in the order of the floats, bit by bit.
            key = ct.full((CHUNK,), LEAST, ct.int32)
            step = ct.full((CHUNK,), LEAST, ct.int32)
            for _ in range(32):
                higher = key ^ step
                reached = ct.zeros((CHUNK,), ct.int32)
                for start in range(0, n, SEARCH):
                    place = start + ct.arange(SEARCH, dtype=ct.int32)
                    bits = ct.bitcast(x.get_raw_memory().load_offset(place, mask=place < n), ct.int32)
                    other = ct.where(place < n, bits ^ (bits >> 31 & 0x7FFFFFFF), LEAST)
                    reached += ct.sum((other[None, :] >= higher[:, None]).astype(ct.int32), 1)
                key = ct.where(reached > rank, higher, key)
                step = step >> 1 & 0x7FFFFFFF
            value = ct.where(lost, ct.bitcast(key ^ (key >> 31 & 0x7FFFFFFF), ct.float32), value)
        y.get_raw_memory().store_offset(rank, value, mask=wanted)


@functools.cache
def hinted(kernel: ct.kernel, warps: int) -> ct.kernel:
    """`kernel` for blocks of `warps` warps. A hinted kernel has compiled code of its own."""
    return kernel.replace_hints(num_worker_warps=warps)


def _power(number: int) -> int:
    """The least power of two that is not below `number`."""
    return 1 << (number - 1).bit_length()


def run(x: torch.Tensor, N: int, k: int, *, SHARES: int, CHUNK: int, TURN: int) -> torch.Tensor:
    """Return the k largest of x [N], in descending order; SHARES shares, or more of a large array or for a large k."""
    stream = torch.cuda.current_stream()
    y = torch.empty(k, dtype=x.dtype, device=x.device)
    if N <= SHORT:
        ct.launch(stream, (ct.cdiv(N, CHUNK),), short_kernel, (x, y, N, k, CHUNK, TURN, N % TURN == 0))
        return y
    shares = max(SHARES, _power(ct.cdiv(k, 16)), _power(N) // SHARE)
    size = max(128, _power(ct.cdiv(N, shares)))
    # The largest k values are spread over the shares as by throwing dice: k / shares, and four standard deviations.
    wanted = max(16, math.ceil(k / shares + 4 * math.sqrt(k / shares) + 4))
    rests = torch.empty(shares, dtype=x.dtype, device=x.device)
    counts = torch.empty(shares, dtype=torch.int32, device=x.device)
    kept = torch.empty(SLOTS * shares, dtype=x.dtype, device=x.device)  # TURN divides it
    warps = 8 if size > 2048 else 4
    whole = shares * size == N
    runs = x.view(N // shares // 16, shares, 16) if whole else x.view(1, 1, N)
    threads = min(32 * warps, size // 4)
    arguments = (x, runs, rests, counts, kept, N, wanted, shares, size, GROUPS, SLOTS, threads, whole)
    ct.launch(stream, (shares,), hinted(sift_kernel, warps), arguments)
    arguments = (x, kept, rests, counts, y, N, k, shares, CHUNK, TURN)
    launch_dependent(stream, (SLOTS * shares // CHUNK,), rank_kernel, arguments)
    return y


def default(case: Case) -> Config:
    if case["N"] <= SHORT:
        return {"SHARES": 64, "CHUNK": 8, "TURN": 4096}
    # Fewer shares keep fewer values too many, but of a large array each of them takes longer.
    large = case["N"] > 1 << 18
    return {"SHARES": 128 if large else 64, "CHUNK": 8 if large or case["k"] > 256 else 4, "TURN": 512}


def space(case: Case) -> list[Config]:
    if case["N"] <= SHORT:
        return [{"SHARES": 64, "CHUNK": chunk, "TURN": turn} for chunk in (4, 8, 16) for turn in (1024, 2048, 4096)]
    return [
        {"SHARES": shares, "CHUNK": chunk, "TURN": turn}
        for shares in (64, 128)
        for chunk in (4, 8, 16)
        for turn in (512, 1024, 2048)
        if chunk * turn <= 8192  # which a block's registers hold
    ]


KERNEL = Kernel(run=run, default=default, space=space)
