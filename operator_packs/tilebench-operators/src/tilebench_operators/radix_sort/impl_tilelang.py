"""Radix sort in TileLang: passes over digits of BITS bits, least significant first, in one launch with barriers of the grid.

Every block has a segment of neighbouring keys, which it goes through in tiles. A pass has three phases:

- a block counts the digits of its segment in shared memory,
- the counts of each digit become the number of equal digits in earlier segments (a block to a digit),
- a block orders tile after tile by the digit on chip, so that equal digits leave as one run of neighbours. Where a digit's
  next run goes it knows from its earlier tiles.

A warp ranks 32 keys at a time: votes tell each lane which lanes have the same digit as itself, and the warp's own counter of
that digit how many of its earlier keys had. Every lane makes out of the votes who has the lane's own number as the lower or
the upper half of a digit, and what it wants to know of its digit's halves it has from the lanes of these numbers: that takes
fewer instructions than to select a vote or its opposite by the bits of a key. Ranks keep the order, which is what makes the
passes add up. The first pass has no order to keep: an atomic addition gives a key its rank. The counters of all warps and
digits then give each key its place in the tile.

The keys of a segment's first tile wait in registers for the counts; the following tile is on its way while a tile is written.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors

LAST = 0x7FFFFFFF  # the key of the largest digits: fills up a tile
# The barriers here are enough: a warp's counters are its own. The compiler would add two per key. All indices are checked.
EXPLICIT = {
    tilelang.PassConfigKey.TL_DISABLE_THREAD_STORAGE_SYNC: True,
    tilelang.PassConfigKey.TL_DISABLE_SAFE_MEMORY_ACCESS: True,
}


@T.macro
def add_up(value, other, sums, before, warps):
    """value [1] becomes the sum over this and the earlier lanes, before [1] that over earlier warps; warps words of sums."""
    tid = T.get_thread_binding()
    for step in T.unroll(5):
        other[0] = T.shfl_up(value[0], 1 << step)
        if tid % 32 >= 1 << step:
            value[0] += other[0]
    if tid % 32 == 31:
        sums[tid // 32] = value[0]
    T.sync_threads()
    before[0] = 0
    for w in T.unroll(warps - 1):
        other[0] = sums[w]
        if w < tid // 32:
            before[0] += other[0]


@T.macro
def read(keys, at, rest, key, KEYS):
    """Let key [KEYS] be the words of keys at [1] and every 32nd after it, up to rest [1] words."""
    for u in T.unroll(KEYS):
        key[u] = LAST
        if u * 32 < rest[0]:
            key[u] = keys[at[0] + u * 32]


@tilelang.jit(pass_configs=EXPLICIT)
def sort_kernel(BITS: int, KEYS: int, PER_SM: int, threads: int):
    """Let the first n words of work [2 · room] be data [n] in ascending order; KEYS of a tile per thread.

    counts [2^BITS, blocks] and totals [2^BITS] are of the pass. threads is at least the number of blocks and of digits;
    turns · blocks are at least 2^BITS. unit is 1: the compiler would make three instructions of the test of a bit it knows.
    """
    n, blocks, words = T.dynamic("n, blocks, words")
    DIGITS = 1 << BITS
    HALVES = 1 << BITS // 2  # values of half a digit
    PASSES = 32 // BITS
    CHUNK = KEYS * 32  # neighbouring keys, of one warp
    WARPS = threads // 32
    SOME = -(-DIGITS // 32)  # warps with a digit to a lane
    TILE = KEYS * threads

    @T.prim_func
    def sort(
        data: T.Tensor((n,), T.int32),
        work: T.Tensor((words,), T.int32),
        counts: T.Tensor((DIGITS, blocks), T.int32),
        totals: T.Tensor((DIGITS,), T.int32),
        room: T.int32,
        segment: T.int32,
        turns: T.int32,
        unit: T.int32,
    ):
        with T.Kernel(blocks, threads=threads) as block:
            T.annotate_min_blocks_per_sm(PER_SM)
            counters = T.alloc_shared((WARPS, DIGITS), T.int32)
            moves = T.alloc_shared((DIGITS,), T.int32)  # from a digit's places in the tile to those in the result
            sums = T.alloc_shared((WARPS,), T.int32)
            exchange = T.alloc_shared((TILE,), T.int32)
            key = T.alloc_local((KEYS,), T.int32)
            place = T.alloc_local((KEYS,), T.int32)
            digit = T.alloc_local((1,), T.int32)
            same = T.alloc_local((1,), T.uint32)
            votes = T.alloc_local((1,), T.uint32)
            alike = T.alloc_local((2,), T.uint32)
            bits = T.alloc_local((BITS,), T.int32)
            clear = T.alloc_local((BITS // 2,), T.uint32)  # ones where the lane's number has a zero
            moved = T.alloc_local((KEYS,), T.int32)
            value = T.alloc_local((1,), T.int32)
            other = T.alloc_local((1,), T.int32)
            before = T.alloc_local((1,), T.int32)
            total = T.alloc_local((1,), T.int32)
            run = T.alloc_local((1,), T.int32)  # of digit tid: where its next key goes
            flip = T.alloc_local((1,), T.int32)  # negative keys come first: their sign bit counts the other way round
            source = T.alloc_local((1,), T.int32)
            target = T.alloc_local((1,), T.int32)
            tiles = T.alloc_local((1,), T.int32)
            at = T.alloc_local((1,), T.int32)
            left = T.alloc_local((1,), T.int32)  # keys of the segment from the tile on
            rest = T.alloc_local((1,), T.int32)  # the same from the thread's first key on
            tid = T.get_thread_binding()
            lane = tid % 32
            warp = tid // 32
            earlier = (T.uint32(1) << T.cast(lane, T.uint32)) - T.uint32(1)  # lanes
            later = T.uint32(0xFFFFFFFE) << T.cast(lane, T.uint32)
            for bit in T.unroll(BITS):
                bits[bit] = unit << bit
            for bit in T.unroll(BITS // 2):
                clear[bit] = T.if_then_else((lane >> bit & 1) == 1, T.uint32(0), T.uint32(0xFFFFFFFF))
            tiles[0] = T.max(T.ceildiv(T.min(segment, n - block * segment), TILE), 0)

            for p in T.serial(PASSES):
                flip[0] = T.if_then_else(p == PASSES - 1, DIGITS // 2, 0)
                source[0] = T.if_then_else(p % 2 == 0, 0, room)
                target[0] = room - source[0]
                for i in T.unroll(T.ceildiv(DIGITS, 32)):
                    if i * 32 + lane < DIGITS:
                        counters[warp, i * 32 + lane] = 0
                T.sync_threads()
                # Row 0 of the counters is the segment's. The tile that comes last stays: it is the first to be ordered.
                for t in T.serial(tiles[0]):
                    at[0] = block * segment + (tiles[0] - 1 - t) * TILE + warp * CHUNK + lane
                    rest[0] = T.min((block + 1) * segment, n) - at[0]
                    if p == 0:
                        read(data, at, rest, key, KEYS)
                    else:
                        at[0] += source[0]
                        read(work, at, rest, key, KEYS)
                    for u in T.unroll(KEYS):
                        digit[0] = (key[u] >> (p * BITS) & (DIGITS - 1)) ^ flip[0]
                        T.atomic_add(counters[0, digit[0]], 1)
                T.sync_threads()
                if tid < DIGITS:
                    value[0] = counters[0, tid]
                    if tid == DIGITS - 1:  # without what fills up the last tile
                        value[0] -= tiles[0] * TILE - T.max(T.min(segment, n - block * segment), 0)
                    counts[tid, block] = value[0]
                T.sync_grid()

                for i in T.serial(turns):
                    if i * blocks + block < DIGITS:
                        value[0] = 0
                        if tid < blocks:
                            value[0] = counts[i * blocks + block, tid]
                        total[0] = value[0]
                        add_up(value, other, sums, before, WARPS)
                        if tid < blocks:
                            counts[i * blocks + block, tid] = before[0] + value[0] - total[0]
                        if tid == blocks - 1:
                            totals[i * blocks + block] = before[0] + value[0]
                        T.sync_threads()
                T.sync_grid()

                value[0] = 0
                if tid < DIGITS:
                    value[0] = totals[tid]
                total[0] = value[0]
                add_up(value, other, sums, before, SOME)
                if tid < DIGITS:
                    run[0] = before[0] + value[0] - total[0] + counts[tid, block] + target[0]
                for i in T.unroll(T.ceildiv(DIGITS, 32)):
                    if i * 32 + lane < DIGITS:
                        counters[warp, i * 32 + lane] = 0
                T.sync_threads()

                for t in T.serial(tiles[0]):
                    left[0] = T.min(segment, n - block * segment) - t * TILE
                    T.sync_warp()
                    if p == 0 and left[0] >= TILE:
                        for u in T.unroll(KEYS):
                            digit[0] = key[u] & (DIGITS - 1)
                            place[u] = T.call_extern("int32", "atomicAdd", T.address_of(counters[warp, digit[0]]), 1)
                    elif warp * CHUNK < left[0]:
                        for u in T.unroll(KEYS):
                            digit[0] = (key[u] >> (p * BITS) & (DIGITS - 1)) ^ flip[0]
                            for half in T.unroll(2):
                                alike[half] = T.uint32(0xFFFFFFFF)
                                for bit in T.unroll(BITS // 2):
                                    votes[0] = T.cast(
                                        T.ballot_sync(digit[0] & bits[half * (BITS // 2) + bit]), T.uint32
                                    )
                                    alike[half] = alike[half] & (votes[0] ^ clear[bit])
                            same[0] = T.shfl_sync(alike[0], digit[0], HALVES) & T.shfl_sync(
                                alike[1], digit[0] >> (BITS // 2), HALVES
                            )
                            place[u] = counters[warp, digit[0]] + T.cast(T.popcount(same[0] & earlier), T.int32)
                            T.sync_warp()
                            if (same[0] & later) == T.uint32(0):
                                counters[warp, digit[0]] = place[u] + 1
                            T.sync_warp()
                    T.sync_threads()
                    # The counters become places in the tile. What fills it up has the last ones.
                    value[0] = 0
                    if tid < DIGITS:
                        for w in T.unroll(WARPS):
                            value[0] += counters[w, tid]
                    total[0] = value[0]
                    add_up(value, other, sums, before, SOME)
                    if tid < DIGITS:
                        value[0] += before[0] - total[0]
                        moves[tid] = run[0] - value[0]
                        run[0] += total[0]
                        for w in T.unroll(WARPS):
                            other[0] = counters[w, tid]
                            counters[w, tid] = value[0]
                            value[0] += other[0]
                    T.sync_threads()
                    if warp * CHUNK < left[0]:
                        for u in T.unroll(KEYS):
                            digit[0] = (key[u] >> (p * BITS) & (DIGITS - 1)) ^ flip[0]
                            place[u] += counters[warp, digit[0]]
                        for u in T.unroll(KEYS):
                            exchange[place[u]] = key[u]
                    at[0] = block * segment + (t + 1) * TILE + warp * CHUNK + lane
                    rest[0] = T.min((block + 1) * segment, n) - at[0]
                    if p == 0:
                        read(data, at, rest, key, KEYS)
                    else:
                        at[0] += source[0]
                        read(work, at, rest, key, KEYS)
                    T.sync_warp()
                    for i in T.unroll(T.ceildiv(DIGITS, 32)):
                        if i * 32 + lane < DIGITS:
                            counters[warp, i * 32 + lane] = 0
                    T.sync_threads()
                    for u in T.unroll(KEYS):
                        moved[u] = exchange[u * threads + tid]
                    for u in T.unroll(KEYS):
                        digit[0] = (moved[u] >> (p * BITS) & (DIGITS - 1)) ^ flip[0]
                        place[u] = u * threads + tid + moves[digit[0]]
                    if left[0] >= TILE:
                        for u in T.unroll(KEYS):
                            work[place[u]] = moved[u]
                    else:
                        for u in T.unroll(KEYS):
                            if u * threads + tid < left[0]:
                                work[place[u]] = moved[u]
                if p < PASSES - 1:
                    T.sync_grid()

    return sort


def run(data: torch.Tensor, *, BITS: int, KEYS: int, PER_SM: int, threads: int) -> torch.Tensor:
    """Return data [n], int32, in ascending order."""
    n = data.numel()
    # All blocks have to be there at once.
    blocks = min(PER_SM * multiprocessors(data.device), threads)
    segment = -(-n // (32 * blocks)) * 32
    # The passes write to the second and the first half in turn, an even number of times.
    room = -(-n // 32) * 32
    work = torch.empty(2 * room, dtype=torch.int32, device=data.device)
    counts = torch.empty((1 << BITS, blocks), dtype=torch.int32, device=data.device)
    totals = torch.empty(1 << BITS, dtype=torch.int32, device=data.device)
    sort_kernel(BITS, KEYS, PER_SM, threads)(data, work, counts, totals, room, segment, -(-(1 << BITS) // blocks), 1)
    return work[:n]


def default(case: Case) -> Config:
    # Large tiles make long runs of equal digits; a segment of the shortest inputs is one small tile.
    return {"BITS": 8, "KEYS": 16 if case["n"] > 1 << 20 else 8, "PER_SM": 2, "threads": 512}


def space(case: Case) -> list[Config]:
    return [
        {"BITS": bits, "KEYS": keys, "PER_SM": per_sm, "threads": threads}
        for bits in (8, 4)
        for per_sm, threads, sizes in (
            (2, 512, (8, 12, 16)),
            (2, 384, (16, 20, 24)),
            (1, 512, (16, 32)),
            (1, 1024, (8, 12)),
        )
        for keys in sizes
    ]


KERNEL = Kernel(run=run, default=default, space=space)
