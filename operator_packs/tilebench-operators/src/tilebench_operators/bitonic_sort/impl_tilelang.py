"""Bitonic sort in TileLang: the network in few passes over memory, every comparison between two registers of one thread.

Merge k joins two sorted runs of 2^(k-1) words, and its stages compare partners at distance 2^(k-1), ..., 2, 1. Every
merge is ascending; the smaller value always moves to the lower place, so the padding above N, infinity, stays where it is.
A word is an fp32 value or two neighbouring fp16 values, which one instruction puts in order with two others; then a last
stage compares the halves of each word.

- `sort_slices` runs merges 1 to SLICE on chip, a slice of 2^SLICE words per block.
- `merge_tiles` runs as many stages as a tile of 2^SLICE words allows: the last ones of one merge, which compare close
  neighbours, and the first ones of the next merge, which compare rows far apart. `plan` cuts the network into such passes.

On chip a tile lies in shared memory, and a thread takes words that differ in a window of W bits of their index: W stages
without another thread. Then they go back and the next window is read. The tile has gaps, so that the lanes of a warp meet
different banks in every window. Between memory and chip, and wherever a window allows it, words travel in quads.
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
    """Words of shared memory for a slice of `words` words: one is left out after every 32."""
    return words + words // 32


def padded_quads(quads: int, W: int) -> int:
    """Quads of shared memory for a tile of `quads` quads of words: one is left out after every 2^W."""
    return quads + (quads >> W)


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


def lower_halves(a, b):
    """The lower halves of two words, in one instruction, which the compiler doesn't find for shifts and masks."""
    return T.call_pure_extern(T.uint32, "__byte_perm", a, b, T.uint32(0x5410))


def upper_halves(a, b):
    return T.call_pure_extern(T.uint32, "__byte_perm", a, b, T.uint32(0x7632))


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
        pair[0] = T.reinterpret(lower_halves(bits[0], bits[1]), x.dtype)
        pair[1] = T.reinterpret(upper_halves(bits[0], bits[1]), x.dtype)
        ordered[0] = T.reinterpret(smaller(pair[0], pair[1]), T.uint32)
        ordered[1] = T.reinterpret(larger(pair[0], pair[1]), T.uint32)
        x[2 * i] = T.reinterpret(lower_halves(ordered[0], ordered[1]), x.dtype)
        x[2 * i + 1] = T.reinterpret(upper_halves(ordered[0], ordered[1]), x.dtype)


def exchange_all(x, FROM: int, COUNT: int):
    """The stages of bits FROM - 1, ..., 0 on the registers x [COUNT], and the one inside the words."""
    for bit in range(FROM - 1, -1, -1):
        exchange(x, bit, COUNT)
    if x.dtype == "float16x2":
        exchange_halves(x, COUNT)


def exchange_upper(x, TOP: int, BOTTOM: int, W: int):
    """The stages of the register bits TOP - 1, ..., BOTTOM."""
    for bit in range(TOP - 1, BOTTOM - 1, -1):
        exchange(x, bit, 1 << W)


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


@T.macro
def sort_window(tile, x, tid, wanted, LOW: int, TOP: int, BOTTOM: int, W: int):
    """If wanted, the stages of bits TOP - 1, ..., BOTTOM on tile."""
    if wanted:
        read_window(tile, x, tid, LOW, W)
        exchange_upper(x, TOP - LOW, BOTTOM - LOW, W)
        write_window(tile, x, tid, LOW, W)
        T.sync_threads()


def sort_windows(tile, x, tid, k, SLICE: int, W: int):
    """The stages of merge k on tile, but those of the lowest window.

    Each number of stages has code of its own: conditions between the stages would cost moves between registers.
    """
    for LOW, TOP, BOTTOM in windows(SLICE, W)[:-1]:
        for top in range(BOTTOM + 1, TOP + 1):
            sort_window(tile, x, tid, k == top if top < TOP else k >= TOP, LOW, top, BOTTOM, W)


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
        sort_windows(tile, x, tid, k, SLICE, W)
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
    """Blocks that a multiprocessor holds at once: as many as 48 registers per thread and 200 KB of shared memory suffice for.

    With W = 5 a few addresses don't find room in these, which costs less than a block less would.
    """
    return max(1, min(32, (1 << 16) // (48 << (SLICE - W)), 50000 // padded(1 << SLICE)))


def held(word, dtype: str):
    """A word as `dtype`, the same bits."""
    return word if word.dtype == dtype else T.reinterpret(word, dtype)


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


def turned(word):
    """A word, its halves exchanged if there are any."""
    if word.dtype != "float16x2":
        return word
    bits = T.reinterpret(word, T.uint32)
    return T.reinterpret(bits >> T.uint32(16) | bits << T.uint32(16), word.dtype)


@T.macro
def exchange_mirrored(x, HALF: int):
    """The first stage of a merge on the registers x [2 * HALF]: the second run is compared backwards with the first one."""
    pair = T.alloc_local((2,), x.dtype)
    for i in T.unroll(HALF):
        pair[0] = x[i]
        pair[1] = turned(x[2 * HALF - 1 - i])
        x[i] = smaller(pair[0], pair[1])
        x[2 * HALF - 1 - i] = turned(larger(pair[0], pair[1]))


@T.macro
def stage(x, wanted, bit: int, W: int):
    """The stage of register bit `bit`, if it is wanted."""
    if wanted:
        exchange(x, bit, 1 << W)


def stages(x, top, bottom, TOP: int, BOTTOM: int, LOW: int, W: int):
    """The stages of the tile's bits top - 1, ..., bottom that lie in TOP - 1, ..., BOTTOM; register bit 0 is bit LOW."""
    for bit in range(TOP - 1, BOTTOM - 1, -1):
        stage(x, T.And(bit < top, bit >= bottom), bit - LOW, W)


@T.macro
def exchange_lower(x, tail, W: int):
    """The end of a merge: the stages of the tile's bits 1 and 0, and the one inside the words."""
    if tail > 0:
        exchange_all(x, 2, 1 << W)


@T.macro
def write_quads(tile, x, lower, upper, SLICE: int, W: int):
    """Registers into the tile: quads of neighbours, which differ in the tile's highest W - 2 bits.

    `lower` and `upper` are the places of the thread's first quad in either half of the tile.
    """
    words = T.alloc_local((4,), tile.dtype)
    HALF = 1 << (W - 3)
    for u in T.unroll(HALF):
        for v in T.unroll(4):
            words[v] = held(x[u * 4 + v], tile.dtype)
        for v in T.vectorized(4):
            tile[(lower + u * padded_quads(1 << (SLICE - W), W)) * 4 + v] = words[v]
    for u in T.unroll(HALF):
        for v in T.unroll(4):
            words[v] = held(x[(HALF + u) * 4 + v], tile.dtype)
        for v in T.vectorized(4):
            tile[(upper + (HALF + u) * padded_quads(1 << (SLICE - W), W)) * 4 + v] = words[v]


@T.macro
def read_quads(tile, x, lower, upper, SLICE: int, W: int):
    """The reverse of `write_quads`."""
    words = T.alloc_local((4,), tile.dtype)
    HALF = 1 << (W - 3)
    for u in T.unroll(HALF):
        for v in T.vectorized(4):
            words[v] = tile[(lower + u * padded_quads(1 << (SLICE - W), W)) * 4 + v]
        for v in T.unroll(4):
            x[u * 4 + v] = held(words[v], x.dtype)
    for u in T.unroll(HALF):
        for v in T.vectorized(4):
            words[v] = tile[(upper + (HALF + u) * padded_quads(1 << (SLICE - W), W)) * 4 + v]
        for v in T.unroll(4):
            x[(HALF + u) * 4 + v] = held(words[v], x.dtype)


@T.macro
def window(tile, x, tid, top, bottom, LOW: int, TOP: int, BOTTOM: int, W: int):
    """The stages of the tile's bits top - 1, ..., bottom that lie in TOP - 1, ..., BOTTOM, if there are any, on tile."""
    place = T.alloc_local((1,), T.int32)
    if T.And(top > BOTTOM, bottom < TOP):
        place[0] = ((tid >> LOW) << (LOW + W)) + (tid & ((1 << LOW) - 1))
        place[0] += (place[0] >> (W + 2)) << 2
        for e in T.unroll(1 << W):
            x[e] = held(tile[place[0] + ((e << LOW) + ((e << LOW) >> (W + 2) << 2))], x.dtype)
        stages(x, top, bottom, TOP, BOTTOM, LOW, W)
        for e in T.unroll(1 << W):
            tile[place[0] + ((e << LOW) + ((e << LOW) >> (W + 2) << 2))] = held(x[e], tile.dtype)
        T.sync_threads()


@T.macro
def read_tile(y, x, words, low, high, step, size, W: int):
    """Registers from y [size words]: the quads of a thread from `low` and from `high` on, infinity beyond size."""
    HALF = 1 << (W - 3)
    for half in T.unroll(2):
        for u in T.unroll(HALF):
            for v in T.unroll(4):
                words[v] = held(infinity(x.dtype), y.dtype)
            if quad(low, high, step, half, u) < size // 4:
                for v in T.vectorized(4):
                    words[v] = y[quad(low, high, step, half, u) * 4 + v]
            for v in T.unroll(4):
                x[(half * HALF + u) * 4 + v] = held(words[v], x.dtype)


@T.macro
def write_tile(y, x, words, low, high, step, size, W: int):
    """The reverse of `read_tile`."""
    HALF = 1 << (W - 3)
    for half in T.unroll(2):
        for u in T.unroll(HALF):
            for v in T.unroll(4):
                words[v] = held(x[(half * HALF + u) * 4 + v], y.dtype)
            if quad(low, high, step, half, u) < size // 4:
                for v in T.vectorized(4):
                    y[quad(low, high, step, half, u) * 4 + v] = words[v]


def quad(low, high, step, half, u):
    """The place in y, in quads, of a thread's quad u of a half: bit b of u stands for step[b]."""
    place = T.if_then_else(half == 0, low, high) + (u & 1) * step[0]
    return place + (u >> 1) * step[1] if step.shape[0] > 1 else place


@tilelang.jit(pass_configs=UNCHECKED)
def merge_kernel(dtype: torch.dtype, SLICE: int, W: int):
    """One pass of `plan`, in place on y [size words], size a multiple of 2^SLICE.

    A block's tile has 2^head rows at distance 2^shift, of 2^row >= 2^tail neighbours each; so a bit of the tile's index is a
    bit of y's, and the bits from `row` on are moved.

    Mirror: the first stage of merge k compares place i of its first run with place i of the second one read backwards. The
    upper half of the tile is the mirror image of the lower one for that; a thread takes mirrored places in both.
    """
    size = T.dynamic("size")
    threads = 1 << (SLICE - W)
    WORD, STORED = word_of(dtype)
    TOP = SLICE - W + 2  # from this bit on, bits are a register's number when a tile comes and goes
    MIDDLE = TOP - W  # the lowest bit of the second window

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
            tile = T.alloc_shared((padded_quads(1 << (SLICE - 2), W) * 4,), STORED)
            x = T.alloc_local((1 << W,), WORD)
            words = T.alloc_local((4,), STORED)
            step = T.alloc_local((W - 3,), T.int32)  # in quads: from one of a thread's in half a tile to others
            row = T.alloc_var(T.int32)
            top = T.alloc_var(T.int32)
            bottom = T.alloc_var(T.int32)
            low = T.alloc_var(T.int32)
            high = T.alloc_var(T.int32)
            other = T.alloc_var(T.int32)
            lower = T.alloc_var(T.int32)
            upper = T.alloc_var(T.int32)
            tid = T.get_thread_binding()
            row = SLICE - head
            # The tile's first word in y, and that of its upper half.
            low = ((block >> (shift - row)) << (shift + head)) + ((block & ((1 << (shift - row)) - 1)) << row)
            high = low + (1 << (shift + head - 1))
            if mirror > 0:
                high += (1 << shift) - (1 << row) - 2 * (low & ((1 << shift) - 1))
            # Without a second run there is nothing to merge.
            if T.if_then_else(mirror * tail > 0, low, (low >> k << k) + (1 << (k - 1))) < size:
                other = T.if_then_else(mirror > 0, threads - 1 - tid, tid)
                lower = tid + (tid >> W)
                upper = other + (other >> W)
                # In quads, with the thread's place.
                low = (low + ((tid * 4) & ((1 << row) - 1)) + (tid * 4 >> row << shift)) >> 2
                high = (high + ((other * 4) & ((1 << row) - 1)) + (other * 4 >> row << shift)) >> 2
                for bit in T.unroll(W - 3):
                    step[bit] = 1 << (TOP - 2 + bit + T.if_then_else(row <= TOP + bit, shift - row, 0))
                read_tile(y, x, words, low, high, step, size, W)
                for part in T.serial(2):  # the end of one merge, the beginning of the next
                    top = T.if_then_else(part == 0, tail, SLICE)
                    bottom = T.if_then_else(part == 0, 0, row)
                    if top > bottom:
                        if part * mirror > 0:
                            exchange_mirrored(x, 1 << (W - 1))
                            stages(x, top, bottom, SLICE - 1, TOP, TOP - 2, W)
                        else:
                            stages(x, top, bottom, SLICE, TOP, TOP - 2, W)
                        if T.And(top > 2, bottom < TOP):
                            write_quads(tile, x, lower, upper, SLICE, W)
                            T.sync_threads()
                            window(tile, x, tid, top, bottom, MIDDLE, TOP, MIDDLE, W)
                            window(tile, x, tid, top, bottom, 2, MIDDLE, 2, W)
                            read_quads(tile, x, lower, upper, SLICE, W)
                        exchange_lower(x, tail * (1 - part), W)
                write_tile(y, x, words, low, high, step, size, W)

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
    return {"SLICE": bits, "W": window, "ROW": 3 if bits == 12 else 4}


def space(case: Case) -> list[Config]:
    # All stages of a tile lie in three windows: SLICE is at most 3 W.
    return [
        {"SLICE": bits, "W": window, "ROW": row}
        for bits, window in ((11, 4), (12, 4), (12, 5), (13, 5), (14, 5), (15, 5))
        for row in (3, 4, 5)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
