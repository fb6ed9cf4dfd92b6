"""Histogram in cuTile, two ways for the private histograms, which a second launch adds up.

METHOD "product", for up to 4096 bins, counts by a matrix product. Split x into two digits, x = hi·L + lo, and make a row
of 0 and 1 for each value of a digit, 1 where an element has it. The product of the rows of hi with those of lo over
the elements counts every pair of digits, and tensor cores do it in int8 with int32 sums. Every warp has elements and
sums of its own. A comparison is done on four elements at once, as four bytes of a word.
METHOD "global", for more bins: atomic additions to the block's own row in global memory, which the L2 cache holds. The
row belongs into shared memory, but cuTile's language has no access to it.
"""

import functools

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors

from tilebench_operators._tile_rows import hinted

WARPS = 4
DIGITS = 64  # values of a digit at most, so that they and the differences of two fit into 6 bits
ROWS = 16  # of one product; larger operands are permuted byte by byte on their way to the tensor cores
COUNT = 64 * 64  # what one element adds: an equal byte is 64, see `rows_of`
CAPACITY = 2**31 // COUNT - 1  # elements that a sum can count
SUM_ROWS, SUM_BINS = 512, 8
BYTES, HIT = 0x01010101, 0x40404040
ZERO = ct.PaddingMode.ZERO


def packed(digits, K):
    """digits [WARPS·K] as words of four bytes, [WARPS, 1, K / 4]."""
    return ct.unpack_from_bytes(digits.astype(ct.uint8), ct.uint32).reshape((WARPS, 1, K // 4))


def rows_of(words, first, count, K):
    """A row for each of `count` values from `first` on: 64 where an element has it, else 0, int8 [WARPS, count, K].

    The exclusive or of two bytes is less than 64, so no byte borrows from its neighbour, and 64 stays if it is 0.
    """
    values = (ct.arange(count, dtype=ct.uint32)[None, :, None] + first) * BYTES
    hits = (ct.full((WARPS, count, K // 4), HIT, ct.uint32) - (words ^ values)) & HIT
    return ct.bitcast(ct.pack_to_bytes(hits).reshape((WARPS, count, K)), ct.int8)


@ct.kernel
def product_kernel(
    x, private,
    HIGH: ct.Constant[int], LOW: ct.Constant[int], COLUMNS: ct.Constant[int], SHIFT: ct.Constant[int],
    K: ct.Constant[int],
):  # fmt: skip
    """One block counts every blocks-th tile of WARPS·K elements of x [n]; private is [blocks, HIGH, LOW], LOW = 2^SHIFT.

    Products are [ROWS, COLUMNS]. Beyond the end x is 0.
    """
    block, blocks = ct.bid(0), ct.num_blocks(0)
    tiles = ct.cdiv(x.shape[0], WARPS * K)
    sums = ()
    for _ in ct.static_iter(range(HIGH // ROWS * (LOW // COLUMNS))):
        sums += (ct.zeros((WARPS, ROWS, COLUMNS), ct.int32),)
    following = ct.load(x, (block,), (WARPS * K,), padding_mode=ZERO, allow_tma=False)
    for tile in range(block, tiles, blocks):
        values = following
        # The next tile is on its way while this one is counted; after the last one it is read again, in vain.
        following = ct.load(x, (min(tile + blocks, tiles - 1),), (WARPS * K,), padding_mode=ZERO, allow_tma=False)
        high, low = packed(values >> SHIFT, K), packed(values & (LOW - 1), K)
        right = ()
        for j in ct.static_iter(range(0, LOW, COLUMNS)):
            right += (ct.permute(rows_of(low, j, COLUMNS, K), (0, 2, 1)),)
        new = ()
        for i in ct.static_iter(range(0, HIGH, ROWS)):
            left = rows_of(high, i, ROWS, K)
            for j in ct.static_iter(range(LOW // COLUMNS)):
                new += (ct.mma(left, right[j], sums[i // ROWS * (LOW // COLUMNS) + j]),)
        sums = new
    for i in ct.static_iter(range(HIGH // ROWS)):
        for j in ct.static_iter(range(LOW // COLUMNS)):
            counts = ct.sum(sums[i * (LOW // COLUMNS) + j] >> 12, 0)  # COUNT for each element
            ct.store(private, (block, i, j), counts.reshape((1, ROWS, COLUMNS)), allow_tma=False)


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
def sum_kernel(private, hist, surplus, ROWS: ct.Constant[int], BINS: ct.Constant[int]):
    """One block adds BINS columns of private [blocks, bins] into hist [num_bins]; bin 0 has `surplus` too many."""
    j = ct.bid(0)
    sums = ct.zeros((ROWS, BINS), ct.int32)
    for i in range(ct.cdiv(private.shape[0], ROWS)):
        sums += ct.load(private, (i, j), (ROWS, BINS), padding_mode=ZERO, allow_tma=False)
    bins = j * BINS + ct.arange(BINS, dtype=ct.int32)
    ct.store(hist, (j,), ct.sum(sums, 0) - ct.where(bins == 0, surplus, 0), allow_tma=False)


@functools.cache
def resident(per_sm: int) -> ct.kernel:
    """`product_kernel` with registers few enough for `per_sm` blocks; a hinted kernel has compiled code of its own."""
    return product_kernel.replace_hints(num_worker_warps=WARPS, occupancy=per_sm)


def digits(num_bins: int) -> tuple[int, int]:
    """Return how many values the high and the low digit have: multiples of a product's rows and columns."""
    low = next(low for low in (8, 16, 32, DIGITS) if num_bins <= max(low, ROWS) * low)
    return max(low, ROWS), low


def run(x: torch.Tensor, N: int, num_bins: int, *, METHOD: str, TILE: int, PER_SM: int) -> torch.Tensor:
    """Return hist [num_bins] int32 of x [N] int32 with values in [0, num_bins)."""
    stream = torch.cuda.current_stream()
    hist = torch.empty(num_bins, dtype=torch.int32, device=x.device)
    # As many blocks as the device holds at once, but none that counts less than half as many values as it has bins.
    tiles = ct.cdiv(N, TILE)
    blocks = min(PER_SM * multiprocessors(x.device), ct.cdiv(N, max(TILE, num_bins // 2)))
    if METHOD == "product":
        high, low = digits(num_bins)
        blocks = max(blocks, ct.cdiv(tiles, CAPACITY * WARPS // TILE))
        private = torch.empty((blocks, high, low), dtype=torch.int32, device=x.device)
        arguments = (x, private, high, low, min(low, 16), low.bit_length() - 1, TILE // WARPS)
        ct.launch(stream, (blocks,), resident(PER_SM), arguments)
        private, surplus = private.view(blocks, high * low), tiles * TILE - N
    else:
        private = torch.zeros((blocks, num_bins), dtype=torch.int32, device=x.device)
        ct.launch(stream, (blocks,), global_kernel, (x, private, num_bins, TILE))
        surplus = 0
    arguments = (private, hist, surplus, SUM_ROWS, SUM_BINS)
    ct.launch(stream, (ct.cdiv(num_bins, SUM_BINS),), hinted(sum_kernel, 8), arguments)
    return hist


def default(case: Case) -> Config:
    bins = case["num_bins"]
    if bins > DIGITS**2:
        return {"METHOD": "global", "TILE": 1024, "PER_SM": 4}
    if bins <= 256:  # large inputs in large tiles, so that a tile is counted for as long as the next one takes to come
        return {
            "METHOD": "product",
            **({"TILE": 512, "PER_SM": 6} if case["N"] < 2**22 else {"TILE": 1024, "PER_SM": 4}),
        }
    # A warp keeps all counts: 128 registers of each thread for 4096 bins.
    return {"METHOD": "product", "TILE": 512, "PER_SM": 4 if bins <= 1024 else 2}


def space(case: Case) -> list[Config]:
    bins = case["num_bins"]
    product = [
        {"METHOD": "product", "TILE": tile, "PER_SM": per_sm}
        for tile in (512, 1024)
        for per_sm in (2, 3, 4, 6, 8)
        if per_sm * tile <= 4096 and bins <= (256 if tile > 512 or per_sm > 4 else 1024 if per_sm > 2 else DIGITS**2)
    ]
    in_global = [
        {"METHOD": "global", "TILE": tile, "PER_SM": per_sm} for tile in (512, 1024, 2048) for per_sm in (1, 2, 4, 8)
    ]
    return product + in_global


KERNEL = Kernel(run=run, default=default, space=space)
