"""Bitonic sort in TileLang: the network in few passes over memory, every comparison between two registers of one thread.

Merge k joins two sorted runs of 2^(k-1) words, and its stages compare partners at distance 2^(k-1), ..., 2, 1. Every
merge is ascending; the smaller value always moves to the lower place, so the padding above N, infinity, stays where it is.
A word is an fp32 value or two neighbouring fp16 values, which one instruction puts in order with two others; then a last
stage compares the halves of each word.

- `sort_slices` runs merges 1 to SLICE on chip, a slice of 2^SLICE words per block.
- `merge_tiles` runs as many stages as a tile of 2^SLICE words allows: the last ones of one merge, which compare close
  neighbours, and the first ones of the next merge, which compare rows far apart. `plan` cuts the network into such passes.

On chip a tile lies in shared memory, and a thread takes words that differ in a window of W bits of their index: W stages
without another thread. Then they go back and the next window is read. Words are shifted by one after every 32, so that the
lanes of a warp meet different banks in every window.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators.bitonic_sort._plan import plan

# The barriers below are enough: a thread writes a window back to where it has read it. The compiler would double them.
SYNCHRONIZED = {tilelang.PassConfigKey.TL_DISABLE_THREAD_STORAGE_SYNC: True}
# The kernels here keep to their arrays by themselves.
UNCHECKED = SYNCHRONIZED | {tilelang.PassConfigKey.TL_DISABLE_SAFE_MEMORY_ACCESS: True}


def padded(words: int) -> int:
    """Words of shared memory for `words` elements."""
    return words + words // 32


# Plain functions, called while the kernel is built: the same stage on fp32 values and on pairs of fp16 values.
def smaller(a, b):
    return T.min2(a, b) if a.dtype == "float16x2" else T.min(a, b)


def larger(a, b):
    return T.max2(a, b) if a.dtype == "float16x2" else T.max(a, b)


def signed(a, sign):
    """The word a times sign, 1 or -1, on the pipe that minima and maxima leave idle."""
    return T.mul2(a, sign) if a.dtype == "float16x2" else a * sign


@T.macro
def exchange(x, BIT: int, COUNT: int):
    """One stage on the registers x [COUNT]: words that differ in bit BIT of their number are put in order."""
    pair = T.alloc_local((2,), x.dtype)
    STEP = 1 << BIT
    for block in T.unroll(COUNT // (2 * STEP)):
        for i in T.unroll(STEP):
            pair[0] = x[block * (2 * STEP) + i]
            pair[1] = x[block * (2 * STEP) + STEP + i]
            x[block * (2 * STEP) + i] = smaller(pair[0], pair[1])
            x[block * (2 * STEP) + STEP + i] = larger(pair[0], pair[1])


@T.macro
def exchange_halves(x, COUNT: int):
    """The stage inside the words x [COUNT]: two words are transposed to one of lower and one of upper halves and back."""
    pair = T.alloc_local((2,), x.dtype)
    # Two arrays: the code generator takes equal expressions under `reinterpret` for equal values.
    bits = T.alloc_local((2,), T.uint32)
    ordered = T.alloc_local((2,), T.uint32)
    for i in T.unroll(COUNT // 2):
        bits[0] = T.reinterpret(x[2 * i], T.uint32)
        bits[1] = T.reinterpret(x[2 * i + 1], T.uint32)
        pair[0] = T.reinterpret(bits[0] & T.uint32(0xFFFF) | bits[1] << T.uint32(16), x.dtype)
        pair[1] = T.reinterpret(bits[0] >> T.uint32(16) | bits[1] & T.uint32(0xFFFF0000), x.dtype)
        ordered[0] = T.reinterpret(smaller(pair[0], pair[1]), T.uint32)
        ordered[1] = T.reinterpret(larger(pair[0], pair[1]), T.uint32)
        x[2 * i] = T.reinterpret(ordered[0] & T.uint32(0xFFFF) | ordered[1] << T.uint32(16), x.dtype)
        x[2 * i + 1] = T.reinterpret(ordered[0] >> T.uint32(16) | ordered[1] & T.uint32(0xFFFF0000), x.dtype)


def exchange_all(x, FROM: int, COUNT: int):
    """The stages of bits FROM - 1, ..., 0 on the registers x [COUNT], and the one inside the words."""
    for bit in range(FROM - 1, -1, -1):
        exchange(x, bit, COUNT)
    if x.dtype == "float16x2":
        exchange_halves(x, COUNT)


@T.macro
def read_window(tile, x, tid, LOW: int, W: int):
    """x [2^W]: the words of tile whose index has bits LOW..LOW+W-1 free, and the thread's number for the others.

    Those bits are zero in `base`: an address is one number of the thread and one constant.
    """
    base = T.alloc_local((1,), T.int32)
    base[0] = ((tid >> LOW) << (LOW + W)) + (tid & ((1 << LOW) - 1))
    base[0] += base[0] >> 5
    for e in T.unroll(1 << W):
        x[e] = tile[base[0] + ((e << LOW) + ((e << LOW) >> 5))]


@T.macro
def write_window(tile, x, tid, LOW: int, W: int):
    """The reverse of `read_window`."""
    base = T.alloc_local((1,), T.int32)
    base[0] = ((tid >> LOW) << (LOW + W)) + (tid & ((1 << LOW) - 1))
    base[0] += base[0] >> 5
    for e in T.unroll(1 << W):
        tile[base[0] + ((e << LOW) + ((e << LOW) >> 5))] = x[e]


def windows(SLICE: int, W: int) -> list[tuple[int, int, int]]:
    """(lowest bit, first stage's bit + 1, last stage's bit) of the windows that cover SLICE bits, the highest first."""
    return [(min(low, SLICE - W), min(low + W, SLICE), low) for low in range((SLICE - 1) // W * W, -1, -W)]


def lower_windows(BITS: int, W: int) -> list[tuple[int, int, int]]:
    """The same of windows for the stages of bits BITS - 1, ..., 0 of a tile with more bits."""
    return [(max(0, top - W), top, max(0, top - W)) for top in range(BITS, 0, -W)]


@T.macro
def window_stages(tile, x, tid, top, bottom, LOW: int, TOP: int, BOTTOM: int, W: int):
    """The stages of bits top - 1, ..., bottom that lie in TOP - 1, ..., BOTTOM, if there are any, on tile."""
    if top > BOTTOM and bottom < TOP:
        read_window(tile, x, tid, LOW, W)
        register_stages(x, top, bottom, LOW, TOP, BOTTOM, W)
        write_window(tile, x, tid, LOW, W)
        T.sync_threads()


@T.macro
def register_stage(x, top, bottom, bit: int, LOW: int, W: int):
    if top > bit and bottom <= bit:
        exchange(x, bit - LOW, 1 << W)


@T.macro
def halves_stage(x, bottom, W: int):
    if bottom == 0:
        exchange_halves(x, 1 << W)


def register_stages(x, top, bottom, LOW: int, TOP: int, BOTTOM: int, W: int):
    for bit in range(TOP - 1, BOTTOM - 1, -1):
        register_stage(x, top, bottom, bit, LOW, W)
    if BOTTOM == 0 and x.dtype == "float16x2":
        halves_stage(x, bottom, W)


def tile_stages(tile, x, tid, top, bottom, chosen: list[tuple[int, int, int]], W: int):
    for LOW, TOP, BOTTOM in chosen:
        window_stages(tile, x, tid, top, bottom, LOW, TOP, BOTTOM, W)


def signs(negative, dtype: str):
    """A word of -1 where the condition holds, of 1 elsewhere."""
    if dtype == "float16x2":
        return T.reinterpret(T.if_then_else(negative, T.uint32(0xBC00BC00), T.uint32(0x3C003C00)), dtype)
    return T.if_then_else(negative, T.float32(-1.0), T.float32(1.0))


@T.macro
def turn_registers(x, k: int, first: bool, W: int):
    """Of the registers x [2^W] negate what merge k wants in the other direction than merge k - 1 left it."""
    minus = T.alloc_local((1,), x.dtype)
    minus[0] = signs(True, x.dtype)
    for e in T.unroll(1 << W):
        if (e >> k ^ T.if_then_else(first, 0, e << 1 >> k)) & 1 == 1:
            x[e] = signed(x[e], minus[0])


def sort_registers(x, W: int):
    """Merges 1 to W - 1 inside the threads, after the one inside the words. Every second run is kept negated, not reversed."""
    start = 0 if x.dtype == "float16x2" else 1
    for k in range(start, W):
        turn_registers(x, k, k == start, W)
        exchange_all(x, k, 1 << W)


@T.macro
def sort_tile(tile, x, tid, SLICE: int, W: int):
    """Sort 2^SLICE words: x [2^W] of every thread, in any order, into tile.

    Runs that merge k makes alternate in direction, as bit k of the index tells; a descending run is an ascending run of
    negated values. Before merge k, values change their sign where bits k and k - 1 differ.
    """
    sign = T.alloc_local((2,), x.dtype)
    sort_registers(x, W)
    # Merge W: bit W is the thread's, bit W - 1 the register's.
    sign[0] = signs(tid & 1 == 1, x.dtype)
    sign[1] = signs(tid & 1 == 0, x.dtype)
    for e in T.unroll(1 << W):
        x[e] = signed(x[e], sign[e >> (W - 1)])
    exchange_all(x, W, 1 << W)
    for k in T.serial(W + 1, SLICE + 1):
        # Bit k - 1 and, unless this is the last merge, bit k of the index are bits of the thread's number.
        sign[0] = signs(
            ((tid >> (k - 1 - W)) ^ T.if_then_else(k < SLICE, tid >> (k - W), 0)) & 1 == 1, x.dtype
        )  # fmt: skip
        for e in T.unroll(1 << W):
            x[e] = signed(x[e], sign[0])
        write_window(tile, x, tid, 0, W)
        T.sync_threads()
        tile_stages(tile, x, tid, k, 0, windows(SLICE, W)[:-1], W)
        read_window(tile, x, tid, 0, W)
        exchange_all(x, W, 1 << W)
    write_window(tile, x, tid, 0, W)
    T.sync_threads()


def word_of(dtype: torch.dtype) -> tuple[str, str]:
    """The type of a word in registers and in memory."""
    return ("float16x2", "int32") if dtype == torch.float16 else ("float32", "float32")


def infinity(dtype: str):
    """A word of infinity."""
    return T.reinterpret(T.uint32(0x7C007C00), dtype) if dtype == "float16x2" else T.infinity(dtype)


def resident(SLICE: int, W: int) -> int:
    """Blocks per multiprocessor to keep registers for."""
    registers = (64 if W == 5 else 48) << (SLICE - W)
    return max(1, min(32, (1 << 16) // registers, 56000 // padded(1 << SLICE)))


def held(word, dtype: str):
    """A word as `dtype`, the same bits."""
    return word if word.dtype == dtype else T.reinterpret(word, dtype)


def reversed_if(condition, word):
    """A word, its halves exchanged if the condition holds and there are any."""
    if word.dtype != "float16x2":
        return word
    bits = T.reinterpret(word, T.uint32)
    return T.reinterpret(T.if_then_else(condition, bits >> T.uint32(16) | bits << T.uint32(16), bits), word.dtype)


@T.macro
def read_values(x, data, first, n, threads: int, COUNT: int):
    """x [COUNT]: words of data [n] from `first` on in no particular order, infinity beyond n."""
    half = T.alloc_local((2,), T.uint32)
    for e in T.unroll(COUNT):
        if x.dtype == "float16x2":
            for h in T.unroll(2):
                half[h] = T.uint32(0x7C00)
                if first + (2 * e + h) * threads < n:
                    half[h] = T.cast(data[first + (2 * e + h) * threads], T.uint32) & T.uint32(0xFFFF)
            x[e] = T.reinterpret(half[0] | half[1] << T.uint32(16), x.dtype)
        else:
            x[e] = infinity(x.dtype)
            if first + e * threads < n:
                x[e] = data[first + e * threads]


@tilelang.jit(pass_configs=UNCHECKED)
def sort_kernel(dtype: torch.dtype, SLICE: int, W: int):
    """Sort every slice of data [n], continued with infinity, into y [size words], size a multiple of 2^SLICE."""
    n, size = T.dynamic("n, size")
    threads = 1 << (SLICE - W)
    WORD, STORED = word_of(dtype)
    VALUES, READ = (2, T.int16) if WORD == "float16x2" else (1, T.float32)

    @T.prim_func
    def sort_slices(data: T.Tensor((n,), READ), y: T.Tensor((size,), STORED)):
        with T.Kernel(size // (1 << SLICE), threads=threads) as block:
            T.annotate_min_blocks_per_sm(resident(SLICE, W))
            tile = T.alloc_shared((padded(1 << SLICE),), WORD)
            x = T.alloc_local((1 << W,), WORD)
            tid = T.get_thread_binding()
            read_values(x, data, (block << SLICE) * VALUES + tid, n, threads, 1 << W)
            sort_tile(tile, x, tid, SLICE, W)
            read_window(tile, x, tid, SLICE - W, W)
            for e in T.unroll(1 << W):
                y[(block << SLICE) + e * threads + tid] = held(x[e], STORED)

    return sort_slices


@T.macro
def exchange_ends(x, sign, HALF: int):
    """The stage of the highest bit on the registers x [2 * HALF], of which the upper ones are kept times sign."""
    pair = T.alloc_local((2,), x.dtype)
    for i in T.unroll(HALF):
        pair[0] = x[i]
        pair[1] = signed(x[HALF + i], sign[0])
        x[i] = smaller(pair[0], pair[1])
        x[HALF + i] = signed(larger(pair[0], pair[1]), sign[0])


@tilelang.jit(pass_configs=UNCHECKED)
def merge_kernel(dtype: torch.dtype, SLICE: int, W: int):
    """One pass of `plan`, in place on y [size words]. A block's tile has 2^head rows at distance 2^shift.

    Mirror: the first stage of merge k compares place i of its first run with place i of the second one read backwards. So
    the upper half of the tile is held backwards and negated; then all its stages are the same as those of the lower half.
    """
    size = T.dynamic("size")
    threads = 1 << (SLICE - W)
    HALF = 1 << (W - 1)
    WORD, STORED = word_of(dtype)

    @T.prim_func
    def merge_tiles(
        y: T.Tensor((size,), STORED),
        blocks: T.int32,
        k: T.int32,
        tail: T.int32,
        head: T.int32,
        shift: T.int32,
        mirror: T.int32,
    ):
        with T.Kernel(blocks, threads=threads) as block:
            T.annotate_min_blocks_per_sm(resident(SLICE, W))
            tile = T.alloc_shared((padded(1 << SLICE),), WORD)
            x = T.alloc_local((1 << W,), WORD)
            low = T.alloc_local((1,), T.int32)
            high = T.alloc_local((1,), T.int32)
            step = T.alloc_local((1,), T.int32)
            offset = T.alloc_local((1,), T.int32)
            top = T.alloc_local((1,), T.int32)
            bottom = T.alloc_local((1,), T.int32)
            sign = T.alloc_local((1,), WORD)
            tid = T.get_thread_binding()
            row = SLICE - head  # index bits of a row
            # The numbers of the tile's words in y: of bits below `row` as they are, of the others moved to `shift`.
            low[0] = ((block & ((1 << (shift - row)) - 1)) << row) + ((block >> (shift - row)) << (shift + head))
            # Without a second run there is nothing to merge.
            if T.if_then_else(mirror * tail > 0, low[0], (low[0] >> k << k) + (1 << (k - 1))) < size:
                offset[0] = low[0] >> k << k
                low[0] += (tid & ((1 << row) - 1)) + ((tid >> row) << shift)
                if mirror > 0:
                    high[0] = 2 * offset[0] + (1 << k) - 1 - low[0]
                    step[0] = -1
                else:
                    high[0] = low[0] + T.if_then_else(head > 0, 1 << (shift + head - 1), 1 << (SLICE - 1))
                    step[0] = 1
                sign[0] = signs(mirror > 0, WORD)
                for e in T.unroll(HALF):
                    offset[0] = ((e * threads) & ((1 << row) - 1)) + ((e * threads >> row) << shift)
                    x[e] = infinity(WORD)
                    if low[0] + offset[0] < size:
                        x[e] = held(y[low[0] + offset[0]], WORD)
                    x[HALF + e] = infinity(WORD)
                    if high[0] + step[0] * offset[0] < size:
                        x[HALF + e] = held(y[high[0] + step[0] * offset[0]], WORD)
                    x[HALF + e] = signed(reversed_if(mirror > 0, x[HALF + e]), sign[0])
                # First the tail of one merge, then the head of the next one.
                for part in T.serial(2):
                    top[0] = T.if_then_else(part == 0, tail, SLICE)
                    bottom[0] = T.if_then_else(part == 0, 0, row)
                    if top[0] > bottom[0]:
                        if top[0] == SLICE:
                            exchange_ends(x, sign, HALF)
                        register_stages(x, top[0], bottom[0], SLICE - W, SLICE - 1, SLICE - W, W)
                        # Plus nothing: else the compiler keeps the addresses of the reads in registers for the writes.
                        low[0] += mirror >> 1
                        high[0] += mirror >> 1
                        if bottom[0] < SLICE - W:
                            write_window(tile, x, tid, SLICE - W, W)
                            T.sync_threads()
                            tile_stages(tile, x, tid, top[0], bottom[0], lower_windows(SLICE - W, W), W)
                            read_window(tile, x, tid, SLICE - W, W)
                for e in T.unroll(HALF):
                    offset[0] = ((e * threads) & ((1 << row) - 1)) + ((e * threads >> row) << shift)
                    if low[0] + offset[0] < size:
                        y[low[0] + offset[0]] = held(x[e], STORED)
                    x[HALF + e] = reversed_if(mirror > 0, signed(x[HALF + e], sign[0]))
                    if high[0] + step[0] * offset[0] < size:
                        y[high[0] + step[0] * offset[0]] = held(x[HALF + e], STORED)

    return merge_tiles


def run(data: torch.Tensor, N: int, *, SLICE: int, W: int, ROW: int) -> torch.Tensor:
    """Return data [N] in ascending order: the first N elements of whole slices."""
    values = 2 if data.dtype == torch.float16 else 1  # of a word
    words = -(-N // values)
    y = torch.empty(-(-words >> SLICE) << SLICE, dtype=torch.int32 if values == 2 else data.dtype, device=data.device)
    sort_kernel(data.dtype, SLICE, W)(data.view(torch.int16) if values == 2 else data, y)
    for k, tail, head, shift, mirror in plan((words - 1).bit_length(), SLICE, ROW):
        blocks = -(-y.numel() >> (shift + head)) << (shift + head - SLICE)
        merge_kernel(data.dtype, SLICE, W)(y, blocks, k, tail, head, shift, int(mirror))
    return y.view(data.dtype)[:N]


def default(case: Case) -> Config:
    # A larger slice saves passes over memory; smaller ones, and more threads for each, fill the multiprocessors when the
    # array is short; and several slices to a multiprocessor hide one another's loads when it is long.
    words = case["n"] // 2 if case.dtype == "fp16" else case["n"]
    bits, window = (10, 4) if words <= 1024 else (12, 4) if words <= 1 << 20 else (13, 5)
    return {"SLICE": bits, "W": window, "ROW": 4}


def space(case: Case) -> list[Config]:
    return [
        {"SLICE": bits, "W": window, "ROW": row} for bits in (11, 12, 13, 14) for window in (4, 5) for row in (4, 5)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
