"""Convolution of small images in TileLang, 3 × 3 taps: one launch whose blocks need nothing of one another.

A small image is a matter of latency: to lay it out anew for TMA and WGMMA costs a grid barrier and another way through L2. Here
a block makes a few whole rows of 16 output channels. It loads the rows of x that these need, turns them in registers and writes
them to shared memory channels-last, 16 bytes of channels a pixel, so that a tap is a shift by pixels. All its weights come by
cp.async as they lie. As many blocks as there are multiprocessors load at once, and only then wait for the first time.

Products are mma.sync: a product has 32 bytes of channels, and a lane holds a quarter of them for two output channels. Which
quarter is free to choose, as long as x has the same order: a lane takes neighbours, so that its weights of all nine taps are 72
bytes side by side, which it only sorts by taps (fp16: pairs of channels). Warps share the reduction: each takes other channels
of a chunk. Of an x tile's row, each operand is loaded once for the three taps of a column, which add it to different rows.
"""

import tilelang
import tilelang.language as T
import torch

from tilebench_operators._tilelang_conv import convolution as general_convolution
from tilebench_operators._tilelang_wgmma import has_wgmma

BM = 16  # output channels of a block
TAPS = 9
STEP = 32  # bytes of channels of a product
LANE = 18  # words of 32 bits: a lane's weights of a product, for one output channel
PAD = 8  # words that rows of weights and of sums are longer, so that those a warp reads at once lie in different banks
ROOM = 229_376  # bytes of shared memory of a block on sm_90

# What blocks read of x later is brought to L2 at once.
PRELUDE = """static __device__ __forceinline__ void prefetch(const void* from, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
"""


def positions(width: int, rows: int) -> int:
    """Pixels of a tile of x with its border: an odd number, so that the channels of a pixel lie in different banks."""
    return (rows + 2) * (width + 2) + 1


def shared_words(dtype: torch.dtype, channels: int, width: int, rows: int, split: int) -> tuple[int, int]:
    """Words of shared memory of the x tiles of two chunks, whose room the sums take at the end, and of the weights."""
    steps = channels * dtype.itemsize // STEP
    tiles = min(2, steps // split) * 2 * split * positions(width, rows) * 4
    return max(tiles, split * BM * (rows * width + PAD)), BM * (steps * 4 * LANE + PAD)


@tilelang.jit(
    pass_configs={
        # The ring of chunks and its barriers are written out here.
        tilelang.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True,
        tilelang.PassConfigKey.TL_DISABLE_THREAD_STORAGE_SYNC: True,
        tilelang.PassConfigKey.TL_DISABLE_SHARED_MEMORY_REUSE: True,
        tilelang.PassConfigKey.TL_DISABLE_SAFE_MEMORY_ACCESS: True,
    }
)
def rows_kernel(dtype: torch.dtype, CHANNELS: int, H: int, W: int, BH: int, SPLIT: int, COLUMNS: int):
    """A block makes BH rows of BM channels of out [B, Cout, H · W] of x [B, CHANNELS, H · W] and weight [Cout, CHANNELS · 9].

    x and weight are words of 32 bits. A chunk is SPLIT products deep. A warp has one of them, and 16 · COLUMNS columns.
    The image's extents are constants: the loops over its rows are written out, and an address costs no more than an offset.
    """
    B, Cout = T.dynamic("B, Cout")
    VEC = 16 // dtype.itemsize
    PACK = 4 // dtype.itemsize  # values of a word
    STEPS = CHANNELS * dtype.itemsize // STEP
    CHUNKS = STEPS // SPLIT
    SLOTS = min(2, CHUNKS)  # for tiles of x
    GROUPS = 2 * SPLIT  # of 16 bytes of channels, in a chunk
    POSITIONS = positions(W, BH)
    threads = 32 * SPLIT * (W // (16 * COLUMNS))
    # Of VEC × VEC values, in a chunk. Eight lanes that store at once shall hit different banks: eight groups, or four in two
    # rows of which one lies two further down.
    PAIRED = GROUPS == 4
    SQUARES = (-(-(BH + 2) // 4) * 4 if PAIRED else BH + 2) * (W // VEC) * GROUPS
    TURNS = -(-SQUARES // threads)
    WPITCH = STEPS * 4 * LANE + PAD
    PIECES = SPLIT * 4 * LANE // 4  # 16 bytes of a row of weights, in a chunk
    WROWS = threads // PIECES  # that all threads load at once
    SPITCH = BH * W + PAD
    SETS = (
        3 if BH * COLUMNS == 1 else 1
    )  # of sums: too few products to add one row of taps to what another has just added to
    SIDES = SLOTS * GROUPS * (BH + 2) * 2
    QUADS = BM * BH * W // 4
    LATER = (CHUNKS - 1) * SPLIT * STEP // dtype.itemsize  # channels of the other chunks
    tf32 = dtype == torch.float32
    shape, kind = ("m16n8k8", "tf32") if tf32 else ("m16n8k16", "fp16")
    x_words, w_words = shared_words(dtype, CHANNELS, W, BH, SPLIT)

    def rounded(word):
        """To the nearest TF32: the tensor core cuts off the rest. A word of fp16 as it is."""
        return word + T.uint32(0x1000) if tf32 else word

    def merged(low, high, selector):
        return T.call_extern("uint32", "__byte_perm", low, high, T.uint32(selector))

    @T.macro
    def load_weights(weight, w_tile, o, chunk, first, piece):
        """A thread has the same 16 bytes of every WROWS-th row from `first` on."""
        for i in T.unroll(-(-BM // WROWS)):
            row = i * WROWS + first
            word = (chunk * PIECES + piece) * 4
            if first < WROWS and row < BM:
                T.ptx_cp_async(
                    T.access_ptr(w_tile[row * WPITCH + word], "w", extent=4),
                    T.access_ptr(weight[o + row, word], "r", extent=4),
                    4,
                )
        T.ptx_commit_group()

    @T.macro
    def place_squares(sources, targets, x_tile, y):
        """Where a thread's squares of the first chunk begin in x and in the tile, in 16 bytes.

        Above and below the image the tile is zeros, of all chunks. What isn't to be stored has a negative target: it is loaded
        from anywhere, so that no load hangs on a condition.
        """
        thread = T.get_thread_binding()
        # Variables, or else every use of them would repeat the divisions.
        row = T.alloc_var(T.int32)
        rest = T.alloc_var(T.int32)
        for i in T.unroll(TURNS):
            square = i * threads + thread
            group = square % GROUPS
            rest = square // GROUPS
            if PAIRED:
                row = rest % 2 * 2 + rest // 2 // (W // VEC) % 2 + rest // 2 // (W // VEC) // 2 * 4
                rest = rest // 2 % (W // VEC)
            else:
                row = rest // (W // VEC)
                rest = rest % (W // VEC)
            target = group * POSITIONS + row * (W + 2) + 1 + rest * VEC
            sources[i] = 0
            targets[i] = -1
            if square < SQUARES and row < BH + 2:
                if y + row >= 1 and y + row <= H:
                    channel = group // 2 * (2 * VEC) + group % 2 * PACK
                    sources[i] = channel * (H * W // VEC) + (y - 1 + row) * (W // VEC) + rest
                    targets[i] = target
                else:
                    for slot in T.unroll(SLOTS):
                        for p in T.unroll(VEC):
                            for w in T.vectorized(4):
                                x_tile[target + slot * (GROUPS * POSITIONS) + p, w] = T.uint32(0)

    @T.macro
    def load_squares(x, raw, sources, b, chunk):
        """A thread's squares of a chunk: 16 bytes of pixels of the channels that share 16 bytes of the tile."""
        for i in T.unroll(TURNS):
            for v in T.unroll(VEC):
                for w in T.vectorized(4):
                    raw[i, v, w] = x[
                        b,
                        sources[i] + (chunk * (SPLIT * 2 * VEC) + v // PACK * (2 * PACK) + v % PACK) * (H * W // VEC),
                        w,
                    ]

    @T.macro
    def store_squares(raw, x_tile, targets, slot):
        turned = T.alloc_local((4,), T.uint32)
        for i in T.unroll(TURNS):
            for p in list(range(VEC)):
                for w in list(range(4)):
                    if tf32:
                        turned[w] = rounded(raw[i, w, p])
                    else:
                        turned[w] = merged(
                            raw[i, 2 * w, p // 2], raw[i, 2 * w + 1, p // 2], 0x7632 if p % 2 == 1 else 0x5410
                        )
                if targets[i] >= 0:
                    for w in T.vectorized(4):
                        x_tile[targets[i] + slot * (GROUPS * POSITIONS) + p, w] = turned[w]

    @T.macro
    def sort_weights(w_tile, words, operand, step):
        """operand [9, 4]: a lane's registers of every tap, for rows lane / 4 and 8 further on, and two words of channels each."""
        lane = T.get_thread_binding() % 32
        for half in T.unroll(2):
            for i in T.unroll(LANE // 2):
                for w in T.vectorized(2):
                    words[i * 2 + w] = w_tile[
                        (lane // 4 + half * 8) * WPITCH + step * (4 * LANE) + lane % 4 * LANE + i * 2 + w
                    ]
            for tap in list(range(TAPS)):
                for k in list(range(2)):
                    if tf32:
                        operand[tap * 4 + k * 2 + half] = rounded(words[k * TAPS + tap])
                    else:
                        operand[tap * 4 + k * 2 + half] = merged(
                            words[k * TAPS + tap // 2], words[k * TAPS + (TAPS + tap) // 2],
                            0x5432 if tap % 2 == 1 else 0x7610,
                        )  # fmt: skip

    @T.macro
    def multiply(x_tile, operand, pixels, total, slot, part, column):
        """total [SETS, BH, COLUMNS, 2, 4] += products of one step: a warp's 16 channels by 16 pixels, as two products of 8."""
        lane = T.get_thread_binding() % 32
        # Four matrices of 8 pixels by 16 bytes: both halves of the channels, of 8 pixels and of the next 8.
        first = (
            (slot * GROUPS + part * 2 + lane // 8 % 2) * POSITIONS + column * (16 * COLUMNS) + lane // 16 * 8 + lane % 8
        )
        for r in list(range(BH + 2)):  # lists: written out here, as places in registers are constants
            for t in list(range(3)):
                for j in list(range(COLUMNS)):
                    T.ptx_ldmatrix(
                        T.bool(False),
                        4,
                        T.access_ptr(x_tile[first + r * (W + 2) + j * 16 + t, 0], "r", extent=4),
                        T.access_ptr(pixels[0], "w", extent=4),
                    )
                    for s in list(range(max(0, r - BH + 1), min(3, r + 1))):
                        for n in list(range(2)):
                            T.ptx_mma(
                                "float32", shape, "row", "col", kind, kind, "fp32",
                                operand.data, (s * 3 + t) * 4,
                                pixels.data, n * 2,
                                total.data, (((s % SETS * BH + r - s) * COLUMNS + j) * 2 + n) * 4,
                                T.bool(False),
                            )  # fmt: skip

    @T.prim_func
    def convolve_rows(
        x: T.Tensor((B, CHANNELS * H * W // VEC, 4), T.uint32),
        weight: T.Tensor((Cout, CHANNELS * TAPS // PACK), T.uint32),
        out: T.Tensor((B, Cout, H * W // PACK), T.uint32),
    ):
        with T.Kernel(-(-H // BH), Cout // BM, B, threads=threads, prelude=PRELUDE) as (band, channels, b):
            x_tile = T.alloc_shared((x_words // 4, 4), T.uint32)
            sums = T.reshape(x_tile, (x_words,))
            w_tile = T.alloc_shared((w_words,), T.uint32)
            sources = T.alloc_local((TURNS,), T.int32)
            targets = T.alloc_local((TURNS,), T.int32)
            raw = T.alloc_local((TURNS, VEC, 4), T.uint32)
            words = T.alloc_local((LANE,), T.uint32)
            operand = T.alloc_local((TAPS * 4,), T.uint32)
            columns = T.alloc_local((4,), T.uint32)
            total = T.alloc_local((SETS * BH * COLUMNS * 8,), T.float32)
            values = T.alloc_local((4,), T.float32)
            thread = T.get_thread_binding()
            lane = thread % 32
            part = thread // 32 % SPLIT
            column = thread // 32 // SPLIT
            row = T.alloc_var(T.int32)
            quad = T.alloc_var(T.int32)
            y = band * BH
            o = channels * BM
            above = T.max(y - 1, 0)
            first = T.alloc_var(T.int32)
            piece = T.alloc_var(T.int32)
            first = thread // PIECES
            piece = thread % PIECES

            # 1. Everything that is needed first is under way before anything is waited for.
            place_squares(sources, targets, x_tile, y)
            load_squares(x, raw, sources, b, 0)
            if CHUNKS > 1:
                # The rows of a channel lie side by side. Blocks of the same rows share the channels, and their warps, whose
                # threads would issue one after the other.
                later = (thread % 32 * (threads // 32) + thread // 32) * (Cout // BM) + channels
                if later < LATER:
                    T.call_extern(
                        "void", "prefetch",
                        T.address_of(
                            x[b, (CHANNELS - LATER + later) * (H * W // VEC) + above * (W // VEC), 0]
                        ),
                        (T.min(y + BH + 1, H) - above) * (W * dtype.itemsize),
                    )  # fmt: skip
            load_weights(weight, w_tile, o, 0, first, piece)
            if CHUNKS > 1:
                for chunk in T.unroll(CHUNKS - 1, annotations={"pragma_unroll_factor": 1}):
                    load_weights(weight, w_tile, o, chunk + 1, first, piece)
            # Columns beside the image.
            for i in T.unroll(-(-SIDES // threads)):
                side = i * threads + thread
                at = side // (2 * (BH + 2)) * POSITIONS + side // 2 % (BH + 2) * (W + 2) + side % 2 * (W + 1)
                if side < SIDES:
                    for w in T.vectorized(4):
                        x_tile[at, w] = T.uint32(0)
            for i in T.unroll(SETS * BH * COLUMNS * 8):
                total[i] = 0
            store_squares(raw, x_tile, targets, 0)

            # 2. While a chunk is multiplied the next one of x is on its way to registers.
            for chunk in T.unroll(CHUNKS, annotations={"pragma_unroll_factor": 1}):
                if chunk + 1 < CHUNKS:
                    load_squares(x, raw, sources, b, chunk + 1)
                if chunk == 0:
                    T.ptx_wait_group(CHUNKS - 1)
                else:
                    T.ptx_wait_group(0)
                T.sync_threads()
                sort_weights(w_tile, words, operand, chunk * SPLIT + part)
                multiply(x_tile, operand, columns, total, chunk % 2, part, column)
                if chunk + 1 < CHUNKS:
                    store_squares(raw, x_tile, targets, (chunk + 1) % 2)

            # 3. The sums of a pixel's warps meet in shared memory, and leave row by row.
            for i in T.unroll((SETS - 1) * 8):
                total[i % 8] += total[8 + i]
            T.sync_threads()
            for r in T.unroll(BH):
                for j in T.unroll(COLUMNS * 2):
                    for half in T.unroll(2):
                        at = (part * BM + half * 8 + lane // 4) * SPITCH + r * W + column * (16 * COLUMNS) + j * 8
                        for w in T.unroll(2):
                            words[w] = T.reinterpret(total[(r * COLUMNS * 2 + j) * 4 + half * 2 + w], T.uint32)
                        for w in T.vectorized(2):
                            sums[at + lane % 4 * 2 + w] = words[w]
            T.sync_threads()
            for i in T.unroll(-(-QUADS // threads)):
                row = (i * threads + thread) // (BH * W // 4)
                quad = (i * threads + thread) % (BH * W // 4)
                if i * threads + thread < QUADS and quad < (H - y) * (W // 4):
                    for w in T.unroll(4):
                        values[w] = 0
                    for k in T.unroll(SPLIT):
                        for w in T.vectorized(4):
                            words[w] = sums[(k * BM + row) * SPITCH + quad * 4 + w]
                        for w in T.unroll(4):
                            values[w] += T.reinterpret(words[w], T.float32)
                    if tf32:
                        for w in T.unroll(4):
                            words[w] = T.reinterpret(values[w], T.uint32)
                        T.stg128(out[b, o + row, y * (W // PACK) + quad * (4 // PACK)], words[T.Ramp(0, 1, 4)])
                    else:
                        for w in T.unroll(2):
                            low = T.reinterpret(T.cast(values[2 * w], dtype), T.uint16)
                            high = T.reinterpret(T.cast(values[2 * w + 1], dtype), T.uint16)
                            words[w] = T.cast(low, T.uint32) | (T.cast(high, T.uint32) << T.uint32(16))
                        T.stg64(out[b, o + row, y * (W // PACK) + quad * (4 // PACK)], words[T.Ramp(0, 1, 2)])

    return convolve_rows


def fits(dtype: torch.dtype, channels: int, out_channels: int, width: int, rows: int, split: int, columns: int) -> bool:
    """Whether a tile of whole rows is made of whole products, and shared memory and registers hold it."""
    steps = channels * dtype.itemsize // STEP
    if channels * dtype.itemsize % STEP or steps % split or out_channels % BM or width % (16 * columns):
        return False
    threads = 32 * split * (width // (16 * columns))
    # Words of a thread: sums, weights of a product, the squares that come while others are multiplied, and addresses.
    squares = -(-(rows + 2) * width * split * (STEP // 4) // threads) if steps > split else 0
    words = rows * columns * 8 + TAPS * 4 + squares + 40
    shared = 4 * sum(shared_words(dtype, channels, width, rows, split))
    return threads <= 1024 and words <= min(255, 65536 // threads) and shared <= ROOM


def convolution(
    input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int, *,
    rows: int, split: int, columns: int,
) -> torch.Tensor:  # fmt: skip
    """Return out [batch, Cout, H_out, W_out] of input [batch, Cin, H, W] and weight [Cout, Cin / groups, k, k].

    Whatever isn't a window of 3 × 3 that keeps the extents, or not made of whole products, is left to `_tilelang_conv`.
    """
    batch, in_channels, height, width = input.shape
    out_channels = weight.shape[0]
    plain = weight.shape[2:] == (3, 3) and (stride, padding, groups) == (1, 1, 1)
    plain = plain and input.data_ptr() % 16 == 0 and weight.data_ptr() % 16 == 0 and has_wgmma()
    if not plain or not fits(input.dtype, in_channels, out_channels, width, rows, split, columns):
        return general_convolution(
            input, weight, stride, padding, groups,
            BM=64, BH=4, BW=16, BK=128 // input.element_size(), stages=4, threads=128,
        )  # fmt: skip
    out = torch.empty((batch, out_channels, height, width), dtype=input.dtype, device=input.device)
    rows_kernel(input.dtype, in_channels, height, width, rows, split, columns)(
        input.view(torch.uint32).view(batch, -1, 4),
        weight.view(out_channels, -1).view(torch.uint32),
        out.view(torch.uint32).view(batch, out_channels, -1),
    )
    return out
