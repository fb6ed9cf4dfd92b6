"""Radix sort in TileLang: passes over digits of BITS bits, least significant first; three launches per pass.

- `count_digits` counts the digits of every tile, in shared memory,
- `scan_tiles` turns the counts of each digit into the number of equal digits in earlier tiles,
- `scatter` orders the keys of its tile by their digit on chip, so that equal digits leave as one run of neighbours.

A warp ranks 32 keys at a time: one vote per bit of the digit tells each lane which lanes have the same digit as itself, and
the warp's own counter of that digit how many of its earlier keys had. Ranks keep the order, which is what makes the passes
add up. The counters of all warps and digits then give each key its place in the tile.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

SCAN_ROWS = 128  # groups of tiles in a block of `scan_tiles`
SCAN_DIGITS = 8  # 32 bytes of a row of counts
# The barriers in `scatter` are enough: a warp's counters are its own. The compiler would add two per key.
SYNCHRONIZED = {tilelang.PassConfigKey.TL_DISABLE_THREAD_STORAGE_SYNC: True}


@tilelang.jit
def count_kernel(BITS: int, KEYS: int, threads: int):
    """counts [tiles, 2^BITS]: how often each digit occurs in each tile of keys [n]; KEYS of them per thread."""
    n, tiles = T.dynamic("n, tiles")
    DIGITS = 1 << BITS
    TILE = KEYS * threads

    @T.prim_func
    def count_digits(
        keys: T.Tensor((n,), T.int32), counts: T.Tensor((tiles, DIGITS), T.int32), shift: T.int32, flip: T.int32
    ):
        with T.Kernel(tiles, threads=threads) as tile:
            histogram = T.alloc_shared((DIGITS,), T.int32)
            values = T.alloc_local((KEYS,), T.int32)
            digit = T.alloc_local((1,), T.int32)
            tid = T.get_thread_binding()
            for i in T.serial(T.ceildiv(DIGITS, threads)):
                if i * threads + tid < DIGITS:
                    histogram[i * threads + tid] = 0
            T.sync_threads()
            if tile * TILE + TILE <= n:
                for u in T.unroll(KEYS // 4):
                    for v in T.vectorized(4):
                        values[u * 4 + v] = keys[tile * TILE + (u * threads + tid) * 4 + v]
                for u in T.unroll(KEYS):
                    digit[0] = (values[u] >> shift & (DIGITS - 1)) ^ flip
                    T.atomic_add(histogram[digit[0]], 1)
            else:
                for u in T.serial(KEYS):
                    if tile * TILE + u * threads + tid < n:
                        digit[0] = (keys[tile * TILE + u * threads + tid] >> shift & (DIGITS - 1)) ^ flip
                        T.atomic_add(histogram[digit[0]], 1)
            T.sync_threads()
            for i in T.serial(T.ceildiv(DIGITS, threads)):
                if i * threads + tid < DIGITS:
                    counts[tile, i * threads + tid] = histogram[i * threads + tid]

    return count_digits


@tilelang.jit
def scan_kernel(DIGITS: int):
    """before [tiles, DIGITS] is the exclusive sum of counts over tiles, totals [DIGITS] the sum.

    One block, SCAN_DIGITS digits: each thread adds its group of tiles, the groups are summed up, and each thread goes
    through its tiles again.
    """
    tiles = T.dynamic("tiles")

    @T.prim_func
    def scan_tiles(
        counts: T.Tensor((tiles, DIGITS), T.int32),
        before: T.Tensor((tiles, DIGITS), T.int32),
        totals: T.Tensor((DIGITS,), T.int32),
    ):
        with T.Kernel(DIGITS // SCAN_DIGITS, threads=SCAN_ROWS * SCAN_DIGITS) as block:
            groups = T.alloc_shared((SCAN_DIGITS, SCAN_ROWS), T.int32)
            total = T.alloc_local((1,), T.int32)
            count = T.alloc_local((1,), T.int32)
            digit = T.get_thread_binding() % SCAN_DIGITS
            group = T.get_thread_binding() // SCAN_DIGITS
            size = T.ceildiv(tiles, SCAN_ROWS)
            total[0] = 0
            for i in T.serial(size):
                if group * size + i < tiles:
                    total[0] += counts[group * size + i, block * SCAN_DIGITS + digit]
            groups[digit, group] = total[0]
            T.sync_threads()
            T.cumsum(groups, dim=1)
            T.sync_threads()
            total[0] = groups[digit, group] - total[0]
            for i in T.serial(size):
                if group * size + i < tiles:
                    count[0] = counts[group * size + i, block * SCAN_DIGITS + digit]
                    before[group * size + i, block * SCAN_DIGITS + digit] = total[0]
                    total[0] += count[0]
            if group == SCAN_ROWS - 1:
                totals[block * SCAN_DIGITS + digit] = groups[digit, SCAN_ROWS - 1]

    return scan_tiles


@tilelang.jit(pass_configs=SYNCHRONIZED)
def scatter_kernel(BITS: int, KEYS: int, threads: int):
    """Write a tile of keys [n] to its places in ordered [n]; KEYS of them per thread, threads >= 2^BITS."""
    n, tiles = T.dynamic("n, tiles")
    DIGITS = 1 << BITS
    TILE = KEYS * threads
    WARPS = threads // 32

    @T.prim_func
    def scatter(
        keys: T.Tensor((n,), T.int32),
        ordered: T.Tensor((n,), T.int32),
        before: T.Tensor((tiles, DIGITS), T.int32),
        totals: T.Tensor((DIGITS,), T.int32),
        shift: T.int32,
        flip: T.int32,
    ):
        with T.Kernel(tiles, threads=threads) as tile:
            counters = T.alloc_shared((WARPS, DIGITS), T.int32)
            # Row 0: where a digit begins in the result, row 1: where in the tile; as sums that include the digit itself.
            starts = T.alloc_shared((2, DIGITS), T.int32)
            moves = T.alloc_shared((DIGITS,), T.int32)
            exchange = T.alloc_shared((TILE,), T.int32)
            key = T.alloc_local((KEYS,), T.int32)
            digit = T.alloc_local((KEYS,), T.int32)
            place = T.alloc_local((KEYS,), T.int32)
            same = T.alloc_local((1,), T.uint32)
            votes = T.alloc_local((1,), T.uint32)
            earlier = T.alloc_local((1,), T.int32)
            total = T.alloc_local((1,), T.int32)
            tid = T.get_thread_binding()
            lane = tid % 32
            warp = tid // 32
            for i in T.serial(T.ceildiv(WARPS * DIGITS, threads)):
                if i * threads + tid < WARPS * DIGITS:
                    counters[(i * threads + tid) // DIGITS, (i * threads + tid) % DIGITS] = 0
            # A warp has KEYS · 32 neighbouring keys. Those beyond n count as the last of the largest digit.
            for u in T.unroll(KEYS):
                key[u] = 0
                digit[u] = DIGITS - 1
                if tile * TILE + (warp * KEYS + u) * 32 + lane < n:
                    key[u] = keys[tile * TILE + (warp * KEYS + u) * 32 + lane]
                    digit[u] = (key[u] >> shift & (DIGITS - 1)) ^ flip
            T.sync_threads()
            for u in T.unroll(KEYS):
                same[0] = T.uint32(0xFFFFFFFF)
                for bit in T.unroll(BITS):
                    votes[0] = T.cast(T.ballot_sync(digit[u] >> bit & 1), T.uint32)
                    same[0] = same[0] & T.if_then_else(
                        (digit[u] >> bit & 1) == 1, votes[0], votes[0] ^ T.uint32(0xFFFFFFFF)
                    )  # fmt: skip
                earlier[0] = T.cast(
                    T.popcount(same[0] & ((T.uint32(1) << T.cast(lane, T.uint32)) - T.uint32(1))), T.int32
                )
                place[u] = counters[warp, digit[u]] + earlier[0]
                T.sync_warp()
                if earlier[0] == 0:
                    counters[warp, digit[u]] = place[u] + T.cast(T.popcount(same[0]), T.int32)
                T.sync_warp()
            T.sync_threads()
            # Per digit: the warps' counts become sums over earlier warps.
            if tid < DIGITS:
                total[0] = 0
                for w in T.unroll(WARPS):
                    earlier[0] = counters[w, tid]
                    counters[w, tid] = total[0]
                    total[0] += earlier[0]
                starts[0, tid] = totals[tid]
                starts[1, tid] = total[0]
                moves[tid] = before[tile, tid] - totals[tid] + total[0]
            T.sync_threads()
            T.cumsum(starts, dim=1)
            T.sync_threads()
            # A digit's run moves by the difference of its places in the result and in the tile.
            if tid < DIGITS:
                moves[tid] += starts[0, tid] - starts[1, tid]
            for u in T.unroll(KEYS):
                earlier[0] = 0
                if digit[u] > 0:
                    earlier[0] = starts[1, digit[u] - 1]
                exchange[earlier[0] + counters[warp, digit[u]] + place[u]] = key[u]
            T.sync_threads()
            for u in T.unroll(KEYS):
                if tile * TILE + u * threads + tid < n:
                    key[u] = exchange[u * threads + tid]
                    digit[u] = (key[u] >> shift & (DIGITS - 1)) ^ flip
                    place[u] = u * threads + tid + moves[digit[u]]
                    ordered[place[u]] = key[u]

    return scatter


def run(data: torch.Tensor, *, BITS: int, KEYS: int, threads: int) -> torch.Tensor:
    """Return data [n], int32, in ascending order."""
    n = data.numel()
    tiles = -(-n // (KEYS * threads))
    result, other = torch.empty_like(data), torch.empty_like(data)
    digits = 1 << BITS
    counts = torch.empty((tiles, digits), dtype=torch.int32, device=data.device)
    before = torch.empty_like(counts)
    totals = torch.empty(digits, dtype=torch.int32, device=data.device)
    source, target = data, other  # an even number of passes: the last one writes to `result`
    for shift in range(0, 32, BITS):
        # Negative keys come first: the sign bit counts the other way round.
        flip = digits // 2 if shift == 32 - BITS else 0
        count_kernel(BITS, KEYS, threads)(source, counts, shift, flip)
        scan_kernel(digits)(counts, before, totals)
        scatter_kernel(BITS, KEYS, threads)(source, target, before, totals, shift, flip)
        source, target = target, result if target is other else other
    return result


def default(case: Case) -> Config:
    # Large tiles make long runs of equal digits; many tiles occupy the multiprocessors.
    return {"BITS": 8, "KEYS": 16 if case["n"] >= 1 << 21 else 8, "threads": 256}


def space(case: Case) -> list[Config]:
    return [
        {"BITS": bits, "KEYS": keys, "threads": threads}
        for bits in (8, 4)
        for keys in (8, 12, 16, 20)
        for threads in (256, 512)  # T.cumsum wants a power of two
    ]


KERNEL = Kernel(run=run, default=default, space=space)
