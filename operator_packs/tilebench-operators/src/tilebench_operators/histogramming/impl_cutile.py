"""Histogram in cuTile, two ways for the private histograms, which a second launch adds up.

METHOD "product", for up to 4096 bins, counts by a matrix product. Split x into two digits, x = hi·L + lo, and make a row
of 0 and 1 for each value of a digit, 1 where an element has it. The product of the rows of hi with those of lo over
the elements counts every pair of digits, and tensor cores do it in int8 with int32 sums. Every warp has elements and
sums of its own. A comparison is done on four elements at once, as four bytes of a word.
METHOD "global", for more bins or few values: atomic additions to the block's own row in global memory, which the L2 cache
holds. The row belongs into shared memory, but cuTile's language has no access to it.
For many bins, "product" leaves a part of each tile to such additions, so that the L2 cache works beside the tensor cores.
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


def packed(values, K):
    """The lowest bytes of values [WARPS·K] as words of four, [WARPS, 1, K / 4]."""
    return ct.unpack_from_bytes(values.astype(ct.uint8), ct.uint32).reshape((WARPS, 1, K // 4))


def digits_of(values, HIGH: int, LOW: int, SHIFT: int, K: int):
    """The high and the low digits of values [WARPS·K] as `packed` words; of four at once where a byte holds a value."""
    words = packed(values, K)
    if HIGH * LOW <= 256:
        return (words >> SHIFT) & ((256 // LOW - 1) * BYTES), words & ((LOW - 1) * BYTES)
    return packed(values >> SHIFT, K), words & ((LOW - 1) * BYTES)


def rows_of(words, first, count, K):
    """A row for each of `count` values from `first` on: 64 where an element has it, else 0, int8 [WARPS, count, K].

    The exclusive or of two bytes is less than 64, so no byte borrows from its neighbour, and 64 stays if it is 0.
    """
    values = (ct.arange(count, dtype=ct.uint32)[None, :, None] + first) * BYTES
    hits = (ct.full((WARPS, count, K // 4), HIT, ct.uint32) - (words ^ values)) & HIT
    return ct.bitcast(ct.pack_to_bytes(hits).reshape((WARPS, count, K)), ct.int8)


@ct.kernel
def product_kernel(
    x, private, added, n,
    HIGH: ct.Constant[int], LOW: ct.Constant[int], COLUMNS: ct.Constant[int], SHIFT: ct.Constant[int],
    K: ct.Constant[int], ADDED: ct.Constant[int], SPAN: ct.Constant[int],
):  # fmt: skip
    """One block counts every blocks-th tile of WARPS·K + ADDED elements of x [n], ADDED of them by atomic additions.

    private [blocks, HIGH, LOW], LOW = 2^SHIFT, takes the products, which are [ROWS, COLUMNS] each. added [blocks, HIGH·LOW]
    takes the additions; without ADDED it has one row, for the last elements, which fill no tile and are always added. So no
    load of a product has a mask. These loads are by offsets: the compiler then brings the values, not the rows of 0 and 1,
    through shared memory to the threads that need them as operands.
    """
    block, blocks = ct.bid(0), ct.num_blocks(0)
    SIZE = WARPS * K + ADDED
    tiles = n // SIZE
    memory, counters = x.get_raw_memory(), added.get_raw_memory()
    own = block if ADDED > 0 else 0
    if ADDED > 0 or block == blocks - 1:
        ct.store(added, (own, 0), ct.zeros((1, HIGH * LOW), ct.int32), allow_tma=False)
    if ADDED > 0:
        PARTS = SIZE // ADDED  # of a tile, the last one to be added
        following = ct.load(x, (block * PARTS + PARTS - 1,), (ADDED,), padding_mode=ZERO, allow_tma=False)
    sums = ()
    for _ in ct.static_iter(range(HIGH // ROWS * (LOW // COLUMNS))):
        sums += (ct.zeros((WARPS, ROWS, COLUMNS), ct.int32),)
    for tile in range(block, tiles, blocks):
        values = memory.load_offset(tile * SIZE + ct.arange(WARPS * K, dtype=ct.int32))
        if ADDED > 0:
            counters.atomic_add_offset(own * (HIGH * LOW) + following, 1, memory_order=ct.MemoryOrder.RELAXED)
            # The next ones are on their way while this tile is counted; after the last tile they are read again, in vain.
            part = min(tile + blocks, tiles - 1) * PARTS + PARTS - 1
            following = ct.load(x, (part,), (ADDED,), padding_mode=ZERO, allow_tma=False)
        high, low = digits_of(values, HIGH, LOW, SHIFT, K)
        right = ()
        for j in ct.static_iter(range(0, LOW, COLUMNS)):
            right += (ct.permute(rows_of(low, j, COLUMNS, K), (0, 2, 1)),)
        new = ()
        for i in ct.static_iter(range(0, HIGH, ROWS)):
            left = rows_of(high, i, ROWS, K)
            for j in ct.static_iter(range(LOW // COLUMNS)):
                new += (ct.mma(left, right[j], sums[i // ROWS * (LOW // COLUMNS) + j]),)
        sums = new
    if block == blocks - 1:
        rest = tiles * SIZE + ct.arange(SPAN, dtype=ct.int32)
        offsets = own * (HIGH * LOW) + memory.load_offset(rest, mask=rest < n, padding_value=0)
        counters.atomic_add_offset(offsets, 1, mask=rest < n, memory_order=ct.MemoryOrder.RELAXED)
    for i in ct.static_iter(range(HIGH // ROWS)):
        for j in ct.static_iter(range(LOW // COLUMNS)):
            counts = ct.sum(sums[i * (LOW // COLUMNS) + j] >> 12, 0)  # COUNT for each element
            ct.store(private, (block, i, j), counts.reshape((1, ROWS, COLUMNS)), allow_tma=False)


@ct.kernel(occupancy=8)
def global_kernel(x, private, num_bins, TILE: ct.Constant[int]):
    """One block counts every blocks-th tile of x [n] in its row of private [blocks, num_bins]."""
    block, blocks = ct.bid(0), ct.num_blocks(0)
    counters = private.get_raw_memory()
    for part in range(ct.cdiv(num_bins, 1024)):
        ct.store(private, (block, part), ct.zeros((1, 1024), ct.int32), allow_tma=False)
    for tile in range(block, ct.cdiv(x.shape[0], TILE), blocks):
        values = ct.load(x, (tile,), (TILE,), padding_mode=ZERO, allow_tma=False)
        inside = tile * TILE + ct.arange(TILE, dtype=ct.int32) < x.shape[0]
        offsets = block * num_bins + values
        counters.atomic_add_offset(offsets, 1, mask=inside, memory_order=ct.MemoryOrder.RELAXED)


@ct.kernel
def sum_kernel(private, hist, ROWS: ct.Constant[int], BINS: ct.Constant[int]):
    """One block adds BINS columns of private [rows, bins] into hist [num_bins]."""
    j = ct.bid(0)
    sums = ct.zeros((ROWS, BINS), ct.int32)
    for i in range(ct.cdiv(private.shape[0], ROWS)):
        sums += ct.load(private, (i, j), (ROWS, BINS), padding_mode=ZERO, allow_tma=False)
    ct.store(hist, (j,), ct.sum(sums, 0), allow_tma=False)


@functools.cache
def resident(per_sm: int) -> ct.kernel:
    """`product_kernel` with registers few enough for `per_sm` blocks; a hinted kernel has compiled code of its own."""
    return product_kernel.replace_hints(num_worker_warps=WARPS, occupancy=per_sm)


def digits(num_bins: int) -> tuple[int, int]:
    """Return how many values the high and the low digit have: multiples of a product's rows and columns."""
    low = next(low for low in (8, 16, 32, DIGITS) if num_bins <= max(low, ROWS) * low)
    return max(low, ROWS), low


def run(x: torch.Tensor, N: int, num_bins: int, *, METHOD: str, TILE: int, ADDED: int, PER_SM: int) -> torch.Tensor:
    """Return hist [num_bins] int32 of x [N] int32 with values in [0, num_bins)."""
    stream = torch.cuda.current_stream()
    hist = torch.empty(num_bins, dtype=torch.int32, device=x.device)
    # As many blocks as the device holds at once, but none that counts less than half as many values as it has bins.
    blocks = min(PER_SM * multiprocessors(x.device), ct.cdiv(N, max(TILE + ADDED, num_bins // 2)))
    if METHOD == "product":
        high, low = digits(num_bins)
        blocks = max(blocks, ct.cdiv(ct.cdiv(N, TILE + ADDED), CAPACITY * WARPS // TILE))
        rows = blocks + (blocks if ADDED else 1)
        private = torch.empty((rows, high, low), dtype=torch.int32, device=x.device)
        added = private[blocks:].view(rows - blocks, high * low)
        constants = (high, low, min(low, 16), low.bit_length() - 1, TILE // WARPS, ADDED, 2 * TILE if ADDED else TILE)
        ct.launch(stream, (blocks,), resident(PER_SM), (x, private[:blocks], added, N, *constants))
        private = private.view(rows, high * low)
    else:
        private = torch.empty((blocks, num_bins), dtype=torch.int32, device=x.device)
        ct.launch(stream, (blocks,), global_kernel, (x, private, num_bins, TILE))
    ct.launch(stream, (ct.cdiv(num_bins, SUM_BINS),), hinted(sum_kernel, 8), (private, hist, SUM_ROWS, SUM_BINS))
    return hist


def default(case: Case) -> Config:
    bins, N = case["num_bins"], case["N"]
    if bins > DIGITS**2 or (bins > 1024 and N <= 2**20):
        small = N < 2**20
        return {"METHOD": "global", "TILE": 1024 if small else 512, "ADDED": 0, "PER_SM": 1 if small else 2}
    if bins <= 256:
        return {"METHOD": "product", "TILE": 512, "ADDED": 0, "PER_SM": 8}
    # What is added takes the L2 cache about as long as the product takes the multiprocessors.
    if bins <= 1024:
        return {"METHOD": "product", "TILE": 512, "ADDED": 128 if N >= 2**24 else 0, "PER_SM": 6}
    # A warp keeps all counts: 128 registers of each thread for 4096 bins.
    return {"METHOD": "product", "TILE": 512, "ADDED": 512, "PER_SM": 2}


def space(case: Case) -> list[Config]:
    bins = case["num_bins"]
    product = [
        {"METHOD": "product", "TILE": tile, "ADDED": added, "PER_SM": per_sm}
        for tile in (512, 1024)
        for added in (0, 128, 256, 512)
        for per_sm in (2, 4, 6, 8, 10)
        if bins <= (256 if per_sm > 6 else 1024 if per_sm > 2 else DIGITS**2)
        and (added == 0 or (tile == 512 and bins > 256))
        and (tile == 512 or (bins <= 256 and per_sm <= 4))
    ]
    in_global = [
        {"METHOD": "global", "TILE": tile, "ADDED": 0, "PER_SM": per_sm}
        for tile in (512, 1024, 2048)
        for per_sm in (1, 2, 4, 8)
    ]
    return product + in_global


KERNEL = Kernel(run=run, default=default, space=space)
