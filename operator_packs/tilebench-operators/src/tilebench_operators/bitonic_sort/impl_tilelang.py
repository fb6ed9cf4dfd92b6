"""Bitonic sort in TileLang: the whole network in a few launches, every comparison between two registers of one thread.

Merge k joins two sorted runs of 2^(k-1) elements, and its stages compare partners at distance 2^(k-1), ..., 2, 1.
Every merge is ascending; the smaller value always moves to the lower place, so the padding above N stays where it is, and is
neither stored nor read.

- `sort_slices` runs merges 1 to SLICE on chip, a slice of 2^SLICE elements per block.
- `cross` runs up to five stages at distances beyond a slice in one pass: a thread has a column of partners.
- `merge_slices` runs the last SLICE stages of a merge on chip.

On chip a slice lies in shared memory, and a thread takes elements that differ in a window of W bits of their index: W
stages without another thread. Then they go back and the next window is read. Words are shifted by one after every 32, so that the
lanes of a warp meet different banks in every window. fp16 is compared in fp32, which changes no value.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

WINDOW = 5  # index bits of a thread: 32 elements in registers
# The barriers below are enough: a thread writes a window back to where it has read it. The compiler would double them.
SYNCHRONIZED = {tilelang.PassConfigKey.TL_DISABLE_THREAD_STORAGE_SYNC: True}


def padded(words: int) -> int:
    """Words of shared memory for `words` elements."""
    return words + words // 32


@T.macro
def exchange(x, BIT: int, COUNT: int, descending: bool):
    """One stage on the registers x [COUNT]: elements that differ in bit BIT of their number are put in order."""
    pair = T.alloc_local((2,), T.float32)
    STEP = 1 << BIT
    for block in T.unroll(COUNT // (2 * STEP)):
        for i in T.unroll(STEP):
            pair[0] = x[block * (2 * STEP) + i]
            pair[1] = x[block * (2 * STEP) + STEP + i]
            if descending:
                x[block * (2 * STEP) + i] = T.max(pair[0], pair[1])
                x[block * (2 * STEP) + STEP + i] = T.min(pair[0], pair[1])
            else:
                x[block * (2 * STEP) + i] = T.min(pair[0], pair[1])
                x[block * (2 * STEP) + STEP + i] = T.max(pair[0], pair[1])


@T.macro
def read_window(tile, x, tid, LOW: int, W: int):
    """x [2^W]: the elements of tile whose index has bits LOW..LOW+W-1 free, and the thread's number for the others."""
    base = T.alloc_local((1,), T.int32)
    base[0] = ((tid >> LOW) << (LOW + W)) + (tid & ((1 << LOW) - 1))
    for e in T.unroll(1 << W):
        x[e] = tile[base[0] + (e << LOW) + ((base[0] + (e << LOW)) >> 5)]


@T.macro
def write_window(tile, x, tid, LOW: int, W: int):
    """The reverse of `read_window`."""
    base = T.alloc_local((1,), T.int32)
    base[0] = ((tid >> LOW) << (LOW + W)) + (tid & ((1 << LOW) - 1))
    for e in T.unroll(1 << W):
        tile[base[0] + (e << LOW) + ((base[0] + (e << LOW)) >> 5)] = x[e]


# Plain functions, so that their loops run while the kernel is built and call macros with constants.
def exchange_all(x, FROM: int, TO: int, COUNT: int, descending: bool = False):
    """The stages of bits FROM - 1, ..., TO on the registers x [COUNT]."""
    for bit in range(FROM - 1, TO - 1, -1):
        exchange(x, bit, COUNT, descending)


def windows(SLICE: int, W: int) -> list[tuple[int, int, int]]:
    """(lowest bit, first stage's bit + 1, last stage's bit) of the windows that cover SLICE bits, the highest first."""
    return [(min(low, SLICE - W), min(low + W, SLICE), low) for low in range((SLICE - 1) // W * W, -1, -W)]


@T.macro
def merge_window(tile, x, tid, k, LOW: int, TOP: int, BOTTOM: int, W: int):
    """The stages of merge k that compare partners in bits TOP - 1, ..., BOTTOM, if there are any."""
    if k > BOTTOM:
        read_window(tile, x, tid, LOW, W)
        merge_stages(x, k, LOW, TOP, BOTTOM, W)
        write_window(tile, x, tid, LOW, W)
        T.sync_threads()


@T.macro
def merge_stage(x, k, bit: int, LOW: int, W: int):
    if k > bit:
        exchange(x, bit - LOW, 1 << W, False)


def merge_stages(x, k, LOW: int, TOP: int, BOTTOM: int, W: int):
    for bit in range(TOP - 1, BOTTOM - 1, -1):
        merge_stage(x, k, bit, LOW, W)


def merge_windows(tile, x, tid, k, SLICE: int, W: int):
    for LOW, TOP, BOTTOM in windows(SLICE, W)[:-1]:
        merge_window(tile, x, tid, k, LOW, TOP, BOTTOM, W)


@T.macro
def turn_first(x, k: int, W: int):
    """Of the registers x [2^W] negate what merge k wants in the other direction than merge k - 1 left it."""
    for e in T.unroll(1 << W):
        if (e >> k ^ e >> (k - 1)) & 1 == 1:
            x[e] = -x[e]


def sort_registers(x, tid, SLICE: int, W: int):
    """Merges 1 to W - 1 inside the threads. Every second run is kept negated, not reversed."""
    for k in range(1, W):
        if k == 1:
            turn_odd(x, W)
        else:
            turn_first(x, k, W)
        exchange_all(x, k, 0, 1 << W)


@T.macro
def turn_odd(x, W: int):
    for e in T.unroll(1 << W):
        if e >> 1 & 1 == 1:
            x[e] = -x[e]


@T.macro
def sort_tile(tile, x, tid, SLICE: int, W: int):
    """Sort 2^SLICE elements: x [2^W] of every thread, in any order, into tile.

    Runs that merge k makes alternate in direction, as bit k of the index tells; a descending run is an ascending run of
    negated values. Before merge k, values change their sign where bits k and k - 1 differ.
    """
    sign = T.alloc_local((1,), T.float32)
    sort_registers(x, tid, SLICE, W)
    # Merge W: bit W is the thread's, bit W - 1 the register's.
    sign[0] = T.if_then_else(tid & 1 == 1, -1.0, 1.0)
    for e in T.unroll(1 << W):
        x[e] = x[e] * T.if_then_else(e >> (W - 1) == 1, -sign[0], sign[0])
    exchange_all(x, W, 0, 1 << W)
    for k in T.serial(W + 1, SLICE + 1):
        # Bit k - 1 and, unless this is the last merge, bit k of the index are bits of the thread's number.
        sign[0] = T.if_then_else(
            ((tid >> (k - 1 - W)) ^ T.if_then_else(k < SLICE, tid >> (k - W), 0)) & 1 == 1, -1.0, 1.0
        )  # fmt: skip
        for e in T.unroll(1 << W):
            x[e] = x[e] * sign[0]
        write_window(tile, x, tid, 0, W)
        T.sync_threads()
        merge_windows(tile, x, tid, k, SLICE, W)
        read_window(tile, x, tid, 0, W)
        exchange_all(x, W, 0, 1 << W)
    write_window(tile, x, tid, 0, W)
    T.sync_threads()


@tilelang.jit(pass_configs=SYNCHRONIZED)
def sort_kernel(dtype: torch.dtype, SLICE: int):
    """Sort every slice of x [n] into y [n]."""
    n = T.dynamic("n")
    threads = 1 << (SLICE - WINDOW)

    @T.prim_func
    def sort_slices(x: T.Tensor((n,), dtype), y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, 1 << SLICE), threads=threads) as block:
            tile = T.alloc_shared((padded(1 << SLICE),), T.float32)
            values = T.alloc_local((1 << WINDOW,), T.float32)
            tid = T.get_thread_binding()
            for e in T.unroll(1 << WINDOW):
                values[e] = T.infinity(T.float32)
                if (block << SLICE) + e * threads + tid < n:
                    values[e] = T.cast(x[(block << SLICE) + e * threads + tid], T.float32)
            sort_tile(tile, values, tid, SLICE, WINDOW)
            for e in T.unroll(1 << WINDOW):
                if (block << SLICE) + e * threads + tid < n:
                    y[(block << SLICE) + e * threads + tid] = T.cast(
                        tile[e * threads + tid + ((e * threads + tid) >> 5)], dtype
                    )

    return sort_slices


@tilelang.jit(pass_configs=SYNCHRONIZED)
def merge_kernel(dtype: torch.dtype, SLICE: int):
    """The stages of merge k at distances 2^(SLICE-1), ..., 1, in place on y [n]."""
    n = T.dynamic("n")
    threads = 1 << (SLICE - WINDOW)

    @T.prim_func
    def merge_slices(y: T.Tensor((n,), dtype), k: T.int32):
        with T.Kernel(T.ceildiv(n, 1 << SLICE), threads=threads) as block:
            tile = T.alloc_shared((padded(1 << SLICE),), T.float32)
            values = T.alloc_local((1 << WINDOW,), T.float32)
            tid = T.get_thread_binding()
            # Else the second run is empty, and there is nothing to merge.
            if ((block << SLICE) >> k << k) + (1 << (k - 1)) < n:
                for e in T.unroll(1 << WINDOW):
                    values[e] = T.infinity(T.float32)
                    if (block << SLICE) + e * threads + tid < n:
                        values[e] = T.cast(y[(block << SLICE) + e * threads + tid], T.float32)
                # The order of loading is that of the highest window.
                exchange_all(values, WINDOW, 0, 1 << WINDOW)
                write_window(tile, values, tid, SLICE - WINDOW, WINDOW)
                T.sync_threads()
                lower_windows(tile, values, tid, SLICE - WINDOW)
                for e in T.unroll(1 << WINDOW):
                    if (block << SLICE) + e * threads + tid < n:
                        y[(block << SLICE) + e * threads + tid] = T.cast(
                            tile[e * threads + tid + ((e * threads + tid) >> 5)], dtype
                        )

    return merge_slices


@T.macro
def lower_window(tile, x, tid, LOW: int, TOP: int, BOTTOM: int):
    read_window(tile, x, tid, LOW, WINDOW)
    exchange_all(x, TOP - LOW, BOTTOM - LOW, 1 << WINDOW)
    write_window(tile, x, tid, LOW, WINDOW)
    T.sync_threads()


def lower_windows(tile, x, tid, BITS: int):
    """The stages of bits BITS - 1, ..., 0 of a slice in tile."""
    for top in range(BITS, 0, -WINDOW):
        lower_window(tile, x, tid, max(0, top - WINDOW), top, max(0, top - WINDOW))


@tilelang.jit
def cross_kernel(dtype: torch.dtype, STAGES: int, mirror: bool, threads: int):
    """STAGES stages of merge k in place on y [n], the last of them at `distance`, a power of two >= threads.

    Mirror: they are the first ones. Place i of the first run is then compared with place i of the second one read
    backwards, and the second run's part is merged downwards: stored backwards again, it is in ascending order.
    """
    n = T.dynamic("n")
    HALF = 1 << (STAGES - 1)

    @T.prim_func
    def cross(y: T.Tensor((n,), dtype), blocks: T.int32, k: T.int32, log_distance: T.int32):
        with T.Kernel(blocks, threads=threads) as block:
            first = T.alloc_local((HALF,), T.float32)
            second = T.alloc_local((HALF,), T.float32)
            low = T.alloc_local((1,), T.int32)
            high = T.alloc_local((1,), T.int32)
            step = T.alloc_local((1,), T.int32)  # of `high` from row to row
            low[0] = (block * threads >> log_distance) << (log_distance + STAGES)
            if (low[0] >> k << k) + (1 << (k - 1)) < n:
                if mirror:
                    high[0] = low[0] + (2 * HALF << log_distance) - 1
                    step[0] = -1 << log_distance
                    high[0] -= block * threads + T.get_thread_binding() & ((1 << log_distance) - 1)
                else:
                    high[0] = low[0] + (HALF << log_distance)
                    step[0] = 1 << log_distance
                    high[0] += block * threads + T.get_thread_binding() & ((1 << log_distance) - 1)
                low[0] += block * threads + T.get_thread_binding() & ((1 << log_distance) - 1)
                for r in T.unroll(HALF):
                    first[r] = T.infinity(T.float32)
                    second[r] = T.infinity(T.float32)
                    if low[0] + (r << log_distance) < n:
                        first[r] = T.cast(y[low[0] + (r << log_distance)], T.float32)
                    if high[0] + r * step[0] < n:
                        second[r] = T.cast(y[high[0] + r * step[0]], T.float32)
                split(first, second, HALF)
                exchange_all(first, STAGES - 1, 0, HALF)
                exchange_all(second, STAGES - 1, 0, HALF, mirror)
                for r in T.unroll(HALF):
                    if low[0] + (r << log_distance) < n:
                        y[low[0] + (r << log_distance)] = T.cast(first[r], dtype)
                    if high[0] + r * step[0] < n:
                        y[high[0] + r * step[0]] = T.cast(second[r], dtype)

    return cross


@T.macro
def split(first, second, COUNT: int):
    """The smaller of each pair into first [COUNT], the larger one into second."""
    pair = T.alloc_local((2,), T.float32)
    for r in T.unroll(COUNT):
        pair[0] = first[r]
        pair[1] = second[r]
        first[r] = T.min(pair[0], pair[1])
        second[r] = T.max(pair[0], pair[1])


def passes(stages: int, most: int) -> list[int]:
    """Split `stages` into as few passes of at most `most` as there can be: full ones after a first one with the rest."""
    count = -(-stages // most)
    return [stages - most * (count - 1)] + [most] * (count - 1)


def run(data: torch.Tensor, N: int, *, SLICE: int, STAGES: int, threads: int) -> torch.Tensor:
    """Return data [N] in ascending order."""
    y = torch.empty_like(data)
    sort_kernel(data.dtype, SLICE)(data, y)
    for k in range(SLICE + 1, (N - 1).bit_length() + 1):
        left = k
        for stages in passes(k - SLICE, STAGES):
            # A column per thread: as many as there are elements, rounded up to whole merges, over 2^stages.
            columns = -(-N // (1 << left)) << (left - stages)
            cross_kernel(data.dtype, stages, left == k, threads)(y, columns // threads, k, left - stages)
            left -= stages
        merge_kernel(data.dtype, SLICE)(y, k)
    return y


def default(case: Case) -> Config:
    # A larger slice saves passes over memory; a smaller one fills the multiprocessors when the array is short.
    return {"SLICE": 10 if case["n"] <= 1024 else 13 if case["n"] < 1 << 22 else 14, "STAGES": 5, "threads": 256}


def space(case: Case) -> list[Config]:
    return [
        {"SLICE": bits, "STAGES": stages, "threads": threads}
        for bits in (11, 12, 13, 14)
        for stages in (3, 4, 5)
        for threads in (128, 256)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
