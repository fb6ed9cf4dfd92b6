"""Histogram in cuTile, two ways for the private histograms, which a second launch adds up.

METHOD "lanes", for few bins: each of 128 lanes keeps counters of all bins in registers, eight of 4 bits in a word. A
value adds 1 << 4·(value mod 8) to the word that value div 8 names, found by comparing with every word's number. Before
a 4-bit counter can overflow the words are added to words of 8-bit counters, and a block ends before these can overflow.
METHOD "global", for many bins: atomic additions to the block's own row in global memory, which the L2 cache holds. The
row belongs into shared memory, but cuTile's language has no access to it.
"""

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors

from tilebench_operators._tile_rows import hinted

LANES = 128
VECTOR = 4  # values of a 16-byte load
LOADS = 3  # in flight per lane; 3·4 values are at most what a 4-bit counter counts (15)
ROUNDS = 255 // (LOADS * VECTOR)  # of such loads, until an 8-bit counter could overflow
LANE_BINS = 64  # of a lane: 24 registers; with more of them the comparisons cost more than atomic additions
WORDS = LANE_BINS // 8
SUM_ROWS, SUM_BINS = 512, 8
LOW_NIBBLES = 0x0F0F0F0F
ZERO = ct.PaddingMode.ZERO


def stacked(tiles):
    """Concatenate a tuple of tiles [LANES, 1], whose length is a power of two, along the second axis."""
    if len(tiles) == 1:
        return tiles[0]
    half = len(tiles) // 2
    return ct.cat((stacked(tiles[:half]), stacked(tiles[half:])), 1)


def zeros(words):
    """Return `words` words of counters [LANES, 1], all 0."""
    result = ()
    for _ in ct.static_iter(range(words)):
        result += (ct.zeros((LANES, 1), ct.uint32),)
    return result


def counted(nibbles, values):
    """Return `nibbles` with one more in the counters of `values` [LANES, 1]; values beyond the bins count nowhere."""
    one = ct.full((LANES, 1), 1, ct.uint32) << ((values & 7) * 4)
    word = values >> 3
    result = ()
    for w in ct.static_iter(range(len(nibbles))):
        result += (nibbles[w] + ct.where(word == w, one, 0),)
    return result


def widened(octets, nibbles):
    """Return `octets` plus `nibbles`: of 8-bit counters, word 2w has the even bins of nibble word w, 2w+1 the odd."""
    result = ()
    for w in ct.static_iter(range(len(nibbles))):
        result += (octets[2 * w] + (nibbles[w] & LOW_NIBBLES), octets[2 * w + 1] + ((nibbles[w] >> 4) & LOW_NIBBLES))
    return result


@ct.kernel(occupancy=4)
def lanes_kernel(x, private):
    """One block counts every blocks-th round of tiles of x [n]; private is [blocks, num_bins], num_bins <= 64."""
    block, blocks = ct.bid(0), ct.num_blocks(0)
    n = x.shape[0]
    tiles = ct.cdiv(n, LANES * VECTOR)
    place = VECTOR * ct.arange(LANES, dtype=ct.int32)[:, None]
    octets = zeros(2 * WORDS)
    for start in range(block * LOADS, tiles, blocks * LOADS):
        loaded = ()
        for tile in ct.static_iter(range(LOADS)):
            # A tile must not lie outside of x: beyond the last tile it is read again, and not counted.
            t = ct.load(x, (min(start + tile, tiles - 1),), (LANES * VECTOR,), padding_mode=ZERO, allow_tma=False)
            loaded += (t.reshape((LANES, VECTOR)),)
        nibbles = zeros(WORDS)
        for tile in ct.static_iter(range(LOADS)):
            for v in ct.static_iter(range(VECTOR)):
                values = ct.extract(loaded[tile], (0, v), (LANES, 1))
                inside = (start + tile) * (LANES * VECTOR) + v + place < n
                values = ct.where(inside, values, LANE_BINS)
                nibbles = counted(nibbles, values.astype(ct.uint32))
        octets = widened(octets, nibbles)
    counters = ()
    for b in ct.static_iter(range(LANE_BINS)):
        counters += (((octets[2 * (b // 8) + b % 2] >> (8 * (b % 8 // 2))) & 255).astype(ct.int32),)
    sums = ct.sum(stacked(counters), 0)
    ct.store(private, (block, 0), sums.reshape((1, LANE_BINS)), allow_tma=False)


@ct.kernel(occupancy=8)
def global_kernel(x, private, num_bins, TILE: ct.Constant[int]):
    """One block counts every blocks-th tile of x [n] in its row of private [blocks, num_bins], which starts as 0."""
    block, blocks = ct.bid(0), ct.num_blocks(0)
    counters = private.get_raw_memory()
    for tile in range(block, ct.cdiv(x.shape[0], TILE), blocks):
        values = ct.load(x, (tile,), (TILE,), padding_mode=ZERO, allow_tma=False)
        inside = tile * TILE + ct.arange(TILE, dtype=ct.int32) < x.shape[0]
        offsets = block * num_bins + values
        counters.atomic_add_offset(offsets, 1, mask=inside, memory_order=ct.MemoryOrder.RELAXED)


@ct.kernel
def sum_kernel(private, hist, ROWS: ct.Constant[int], BINS: ct.Constant[int]):
    """One block adds BINS columns of private [blocks, num_bins] into hist [num_bins]."""
    j = ct.bid(0)
    sums = ct.zeros((ROWS, BINS), ct.int32)
    for i in range(ct.cdiv(private.shape[0], ROWS)):
        sums += ct.load(private, (i, j), (ROWS, BINS), padding_mode=ZERO, allow_tma=False)
    ct.store(hist, (j,), ct.sum(sums, 0), allow_tma=False)


def run(x: torch.Tensor, N: int, num_bins: int, *, METHOD: str, TILE: int, PER_SM: int) -> torch.Tensor:
    """Return hist [num_bins] int32 of x [N] int32 with values in [0, num_bins)."""
    stream = torch.cuda.current_stream()
    resident = PER_SM * multiprocessors(x.device)
    hist = torch.empty(num_bins, dtype=torch.int32, device=x.device)
    if METHOD == "lanes":
        rounds = ct.cdiv(N, LOADS * VECTOR * LANES)
        blocks = max(min(resident, rounds), ct.cdiv(rounds, ROUNDS))  # more than fit at once, before counters overflow
        private = torch.empty((blocks, num_bins), dtype=torch.int32, device=x.device)
        ct.launch(stream, (blocks,), lanes_kernel, (x, private))
    else:
        # As many blocks as the device holds at once, but none that counts fewer values than it has bins.
        blocks = min(resident, ct.cdiv(N, max(TILE, num_bins)))
        private = torch.zeros((blocks, num_bins), dtype=torch.int32, device=x.device)
        ct.launch(stream, (blocks,), global_kernel, (x, private, num_bins, TILE))
    ct.launch(stream, (ct.cdiv(num_bins, SUM_BINS),), hinted(sum_kernel, 8), (private, hist, SUM_ROWS, SUM_BINS))
    return hist


def default(case: Case) -> Config:
    # Comparing with all words costs more the more bins there are; an atomic addition costs the same.
    if case["num_bins"] <= LANE_BINS:
        return {"METHOD": "lanes", "TILE": LANES * VECTOR, "PER_SM": 8}
    return {"METHOD": "global", "TILE": 1024, "PER_SM": 4}


def space(case: Case) -> list[Config]:
    lanes = [{"METHOD": "lanes", "TILE": LANES * VECTOR, "PER_SM": per_sm} for per_sm in (4, 8, 16)]
    in_global = [
        {"METHOD": "global", "TILE": tile, "PER_SM": per_sm} for tile in (512, 1024, 2048) for per_sm in (1, 2, 4, 8)
    ]
    return (lanes if case["num_bins"] <= LANE_BINS else []) + in_global


KERNEL = Kernel(run=run, default=default, space=space)
