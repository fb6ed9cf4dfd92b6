"""Convolution of images and volumes in TileLang: a channels-last launch, then an implicit GEMM fed by TMA.

Per tap: out[Cout, pixels] += weight_tap [Cout, Cin] · x[shifted pixels, Cin]ᵀ. A tap's tile of x is a TMA box at a shifted
coordinate, and the hardware fills with zeros what lies outside the image: that is the padding, for nothing.

The inputs have the pixels innermost, but Hopper's tensor cores read TF32 only with the reduction axis innermost. So a first
launch writes x channels-last and packs the weights as [taps, Cout, Cin]; in fp32 it rounds both to TF32.

A step of the main loop takes a column of taps, which differ in the row only: they share all rows of x but the outermost, and
multiply slices of one tile in shared memory. What L2 delivers would be the limit otherwise; for the same reason tiles are as
large as registers and shared memory allow. Their heights are free, so that all multiprocessors get about the same work.

Whatever isn't made of whole 16 bytes, strides and groups (edge cases only) are left to `_tilelang_conv`.
"""

import math

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Device, multiprocessors

from tilebench_operators._tilelang_conv import OPERAND
from tilebench_operators._tilelang_conv import convolution as general_convolution

ROOM = 229_376  # bytes of shared memory for stages and results, beside barriers, on sm_90
LINE = 128  # bytes of channels that eight threads write side by side
PIXELS = 128  # of a tile that a block turns
THREADS = 128
BW = 16  # pixels of a tile's row: the grids' widths are multiples of it


@tilelang.jit
def turn_kernel(dtype: torch.dtype, KD: int, KH: int, KW: int):
    """last [B, pixels, Cin] of x [B, Cin, pixels], packed [KD · KW · KH, Cout, Cin] of weight [Cout, Cin, KD · KH · KW].

    x, last and packed are words of 32 bits; Cin and pixels are whole 16 bytes. The first Cout blocks of axis 0 pack a row of
    weights each, the taps of a column side by side. The others turn x: a thread loads a square of VEC × VEC values by
    16 bytes, turns it in registers, and stores it by 16 bytes; eight threads write a line of LINE bytes. No thread waits for
    another there.
    """
    B, Cin, Cout, pixels, XW, LW, WL = T.dynamic("B, Cin, Cout, pixels, XW, LW, WL")
    VEC = 16 // dtype.itemsize
    PACK = 4 // dtype.itemsize  # values of a word
    TAPS = KD * KH * KW
    CHANNELS = LINE // dtype.itemsize
    SQUARES = PIXELS // VEC * 8 // THREADS  # per thread
    STEP = THREADS // 8 * VEC  # pixels from one to the next
    tf32 = dtype == torch.float32

    @T.macro
    def rounded_word(word):
        """fp32 rounded to TF32, as in `_tilelang_conv`; a word of two 16-bit values as it is."""
        if tf32:
            return (word + T.uint32(0x1000)) & T.uint32(0xFFFFE000)
        return word

    @T.prim_func
    def turn_channels(
        x: T.Tensor((B, Cin, XW), T.uint32),
        last: T.Tensor((B, pixels, LW), T.uint32),
        weight: T.Tensor((Cout, WL), dtype),
        packed: T.Tensor((TAPS, Cout, LW), T.uint32),
    ):
        with T.Kernel(Cout + T.ceildiv(pixels, PIXELS), T.ceildiv(Cin, CHANNELS), B, threads=THREADS) as (i, j, b):
            T.assume(XW % 4 == 0)
            T.assume(LW % 4 == 0)
            T.assume(WL % VEC == 0)
            row = T.alloc_shared((TAPS * CHANNELS,), dtype)
            if i >= Cout:
                thread = T.get_thread_binding()
                channel = j * CHANNELS + thread % 8 * VEC
                channel_word = j * (CHANNELS // PACK) + thread % 8 * 4
                pixel = (i - Cout) * PIXELS + thread // 8 * VEC
                pixel_word = (i - Cout) * (PIXELS // PACK) + thread // 8 * 4
                raw = T.alloc_local((SQUARES, VEC, 4), T.uint32)
                turned = T.alloc_local((4,), T.uint32)
                for k in T.unroll(SQUARES):
                    for c in T.unroll(VEC):
                        if channel + c < Cin and pixel_word + k * (STEP // PACK) < XW:
                            for w in T.vectorized(4):
                                raw[k, c, w] = x[b, channel + c, pixel_word + k * (STEP // PACK) + w]
                for k in T.unroll(SQUARES):
                    if channel < Cin and pixel + k * STEP < pixels:
                        for p in T.unroll(VEC):
                            for w in T.unroll(4):
                                if tf32:
                                    turned[w] = rounded_word(raw[k, w, p])
                                elif p % 2 == 0:
                                    turned[w] = (raw[k, 2 * w, p // 2] & T.uint32(0xFFFF)) | (
                                        raw[k, 2 * w + 1, p // 2] << T.uint32(16)
                                    )
                                else:
                                    turned[w] = (raw[k, 2 * w, p // 2] >> T.uint32(16)) | (
                                        raw[k, 2 * w + 1, p // 2] & T.uint32(0xFFFF0000)
                                    )
                            T.stg128(last[b, pixel + k * STEP + p, channel_word], turned[T.Ramp(0, 1, 4)])
            elif b == 0:
                for m in T.Parallel(TAPS * CHANNELS // VEC):
                    if j * CHANNELS * TAPS + m * VEC < WL:
                        for v in T.vectorized(VEC):
                            row[m * VEC + v] = weight[i, j * CHANNELS * TAPS + m * VEC + v]
                for t, g in T.Parallel(TAPS, CHANNELS // VEC):
                    words = T.alloc_local((4,), T.uint32)
                    if j * CHANNELS + g * VEC < Cin:
                        for w in T.unroll(4):
                            if tf32:
                                words[w] = rounded_word(T.reinterpret(row[(g * VEC + w) * TAPS + t], T.uint32))
                            else:
                                low = T.reinterpret(row[(g * VEC + 2 * w) * TAPS + t], T.uint16)
                                high = T.reinterpret(row[(g * VEC + 2 * w + 1) * TAPS + t], T.uint16)
                                words[w] = T.cast(low, T.uint32) | (T.cast(high, T.uint32) << T.uint32(16))
                        tap = (t // (KH * KW) * KW + t % KW) * KH + t // KW % KH
                        T.stg128(packed[tap, i, j * (CHANNELS // PACK) + g * 4], words[T.Ramp(0, 1, 4)])

    return turn_channels


# A plain function, so that its loop runs while the kernel is built.
def multiply_taps(w_tile, x_tile, slot, total, KH, BM, BH, BK, threads):
    """total [BM, BH · BW] += the products of a column: tap s begins s rows further down in the tile of x."""
    # Warp groups share x where there are channels enough for each, or else the weights.
    policy = T.GemmWarpPolicy.FullRow if threads <= BM * 2 else T.GemmWarpPolicy.FullCol
    for s in range(KH):
        weights, pixels = w_tile[slot, s * BM : s * BM + BM, 0:BK], x_tile[slot, s * BW : (s + BH) * BW, 0:BK]
        T.evaluate(T.wgmma_gemm(weights, pixels, total, transpose_B=True, policy=policy))
    T.evaluate(T.wait_wgmma(0))


def parts(dtype: torch.dtype, bm: int, bh: int, threads: int) -> tuple[int, bool]:
    """In how many parts a tile of results leaves, and whether shared memory holds all of them at once.

    An odd number of rows of 16 pixels is an odd multiple of 32 bytes, so that channels lie in different banks; a tile of an even
    height goes by halves. Halves of fp32 share one buffer, unless each belongs to a warp group.
    """
    return (2 if bh % 2 == 0 else 1), dtype != torch.float32 or threads > bm * 2


@tilelang.jit
def tile_kernel(
    dtype: torch.dtype, taps: tuple, paddings: tuple, CHUNKS: int, BM: int, BH: int, BK: int, stages: int, threads: int,
):  # fmt: skip
    """A block goes through tiles of BM channels and BH × BW pixels of a plane of out [B, Cout, OD, OH, OW].

    last [B, D, H, W, P], P <= CHUNKS · BK channels, packed [taps, Cout, P]. Rows of out are whole 16 bytes: it leaves by TMA.

    One warp loads a ring of stages, `threads` threads multiply. A stage comes in two boxes, for which its buffers need three
    and four axes; T.Pipelined would know them by two only and would fetch row by row, which takes longer than the products.
    """
    B, D, H, W, P, Cout, OD, OH, OW = T.dynamic("B, D, H, W, P, Cout, OD, OH, OW")
    KD, KH, KW = taps
    PD, PH, PW = paddings
    ROWS = BH + KH - 1
    STEPS = KD * KW * CHUNKS
    PARTS, whole = parts(dtype, BM, BH, threads)
    HEIGHT = BH // PARTS
    PIXELS = HEIGHT * BW
    operand = OPERAND.get(dtype, dtype)

    @T.prim_func
    def convolve_tiles(
        last: T.Tensor((B, D, H, W, P), operand),
        packed: T.Tensor((KD * KH * KW, Cout, P), operand),
        out: T.Tensor((B, Cout, OD, OH, OW), dtype),
        programs: T.int32,
        tiles: T.int32,
        channel_tiles: T.int32,
        width_tiles: T.int32,
        height_tiles: T.int32,
    ):
        with T.Kernel(programs, threads=threads + 128) as program:
            T.assume(programs > 0)
            T.assume(channel_tiles > 0)
            T.assume(width_tiles > 0)
            T.assume(height_tiles > 0)
            T.assume(OD > 0)
            w_tile = T.alloc_shared((stages, KH * BM, BK), operand)
            x_tile = T.alloc_shared((stages, ROWS * BW, BK), operand)
            out_tile = T.alloc_shared((PARTS if whole else 1, BM, PIXELS), dtype)
            out_boxes = T.reshape(out_tile, (PARTS if whole else 1, BM, HEIGHT, BW))
            full = T.alloc_barrier([1] * stages)
            empty = T.alloc_barrier([threads] * stages)
            w_boxes = T.reshape(w_tile, (stages, KH, BM, BK))
            x_boxes = T.reshape(x_tile, (stages, ROWS, BW, BK))
            total = T.alloc_fragment((BM, BH * BW), T.float32)
            thread = T.get_thread_binding()
            turns = (tiles - program + programs - 1) // programs
            if thread >= threads:
                if thread < threads + 32:
                    for turn in T.serial(turns):
                        tile = turn * programs + program
                        # Channel tiles are the fastest, then come planes: neighbours in time read the same tiles of x in L2.
                        o = tile % channel_tiles * BM
                        z = tile // channel_tiles % OD - PD
                        x = tile // channel_tiles // OD % width_tiles * BW - PW
                        y = tile // channel_tiles // OD // width_tiles % height_tiles * BH - PH
                        b = tile // channel_tiles // OD // width_tiles // height_tiles
                        for step in T.serial(STEPS):
                            slot = (turn * STEPS + step) % stages
                            T.mbarrier_wait_parity(empty[slot], (turn * STEPS + step) // stages % 2 ^ 1)
                            column = step // CHUNKS
                            c = step % CHUNKS * BK
                            row = z + column // KW
                            left = x + column % KW
                            T.tma_copy(
                                packed[column * KH : column * KH + KH, o : o + BM, c : c + BK],
                                w_boxes[slot, 0:KH, 0:BM, 0:BK],
                                barrier=full[slot],
                                leader_scope_threads=32,
                            )
                            T.tma_copy(
                                last[b, row, y : y + ROWS, left : left + BW, c : c + BK],
                                x_boxes[slot, 0:ROWS, 0:BW, 0:BK],
                                barrier=full[slot],
                                leader_scope_threads=32,
                            )
                            if T.shuffle_elect(32):
                                T.barrier_arrive(full[slot])
            else:
                for turn in T.serial(turns):
                    tile = turn * programs + program
                    o = tile % channel_tiles * BM
                    z = tile // channel_tiles % OD
                    x = tile // channel_tiles // OD % width_tiles * BW
                    y = tile // channel_tiles // OD // width_tiles % height_tiles * BH
                    b = tile // channel_tiles // OD // width_tiles // height_tiles
                    T.clear(total)
                    for step in T.serial(STEPS):
                        slot = (turn * STEPS + step) % stages
                        T.mbarrier_wait_parity(full[slot], (turn * STEPS + step) // stages % 2)
                        multiply_taps(w_tile, x_tile, slot, total, KH, BM, BH, BK, threads)
                        T.barrier_arrive(empty[slot])
                    # While a tile leaves, the loads and products of the next one are under way.
                    if whole:
                        T.tma_store_wait(0)
                        for part, i, p in T.Parallel(PARTS, BM, PIXELS):
                            out_tile[part, i, p] = T.cast(total[i, part * PIXELS + p], dtype)
                        for part in T.unroll(PARTS):
                            T.tma_copy(
                                out_boxes[part, 0:BM, 0:HEIGHT, 0:BW],
                                out[b, o : o + BM, z, y + part * HEIGHT : y + (part + 1) * HEIGHT, x : x + BW],
                            )
                    else:
                        for part in T.unroll(PARTS):
                            T.tma_store_wait(0)
                            for i, p in T.Parallel(BM, PIXELS):
                                out_tile[0, i, p] = T.cast(total[i, part * PIXELS + p], dtype)
                            T.tma_copy(
                                out_boxes[0, 0:BM, 0:HEIGHT, 0:BW],
                                out[b, o : o + BM, z, y + part * HEIGHT : y + (part + 1) * HEIGHT, x : x + BW],
                            )
                T.tma_store_wait(0)

    return convolve_tiles


def stages_that_fit(dtype: torch.dtype, taps: tuple, bm: int, bh: int, bk: int, threads: int) -> int:
    """How many stages shared memory holds beside the tile of results."""
    count, whole = parts(dtype, bm, bh, threads)
    results = bm * bh * BW // (1 if whole else count)
    stage = (taps[1] * bm + (bh + taps[1] - 1) * BW) * bk
    return (ROOM // dtype.itemsize - results) // stage


def convolution(
    input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int, *,
    BM: int, BH: int, BK: int, stages: int, threads: int,
) -> torch.Tensor:  # fmt: skip
    """Return out [batch, Cout, *] of input [batch, Cin, *] and weight [Cout, Cin / groups, *], with 2 or 3 extents each."""
    batch, in_channels, *extents = input.shape
    out_channels, _, *taps = weight.shape
    align = 16 // input.element_size()
    pixels = math.prod(extents)
    out_extents = [extent + 2 * padding - k + 1 for extent, k in zip(extents, taps, strict=True)]
    whole = in_channels % align == 0 and pixels % align == 0 and out_extents[-1] % align == 0
    whole = whole and input.data_ptr() % 16 == 0 and weight.data_ptr() % 16 == 0
    missing = 3 - len(extents)
    all_taps = (*[1] * missing, *taps)
    fitting = stages_that_fit(input.dtype, all_taps, BM, BH, BK, threads)  # tall windows bring more taps and rows
    if stride != 1 or groups != 1 or not whole or fitting < 2:
        return general_convolution(
            input, weight, stride, padding, groups, BM=64, BH=4, BW=16, BK=8 * align, stages=4, threads=128
        )
    extents, paddings = [1] * missing + extents, (*[0] * missing, *[padding] * (3 - missing))
    out_depth, out_height, out_width = [1] * missing + out_extents
    out = torch.empty((batch, out_channels, *out_extents), dtype=input.dtype, device=input.device)
    last = torch.empty((batch, *extents, in_channels), dtype=input.dtype, device=input.device)
    packed = torch.empty((math.prod(taps), out_channels, in_channels), dtype=input.dtype, device=input.device)
    turn_kernel(input.dtype, *all_taps)(
        input.view(batch, in_channels, pixels).view(torch.uint32),
        last.view(batch, pixels, in_channels).view(torch.uint32),
        weight.view(out_channels, -1), packed.view(torch.uint32),
    )  # fmt: skip
    channel_tiles, width_tiles, height_tiles = -(-out_channels // BM), -(-out_width // BW), -(-out_height // BH)
    tiles = batch * channel_tiles * out_depth * width_tiles * height_tiles
    chunks = -(-in_channels // BK)
    tile_kernel(input.dtype, all_taps, paddings, chunks, BM, BH, BK, min(stages, fitting), threads)(
        last, packed, out.view(batch, out_channels, out_depth, out_height, out_width),
        min(tiles, multiprocessors(input.device)), tiles, channel_tiles, width_tiles, height_tiles,
    )  # fmt: skip
    return out


def work(case: Case, taps: tuple, bm: int, bh: int) -> float:
    """Roughly the cycles of the H200's busiest multiprocessor, in which tiles of bm channels and bh × 16 pixels take turns.

    A tile takes as long as its products, 2048 a cycle in fp16, or as its loads, 32 bytes a cycle if all multiprocessors load.
    """
    width = case["W"] or case["H"]
    tiles = -(-case["Cout"] // bm) * case.params.get("D", 1) * -(-case["H"] // bh) * -(-width // BW)
    depth = case["Cin"] * case.dtype_size
    products = depth * math.prod(taps) * bm * bh * BW / 4096
    loads = depth * (math.prod(taps) * bm + taps[0] * taps[2] * (bh + taps[1] - 1) * BW) / 32
    return -(-tiles // 132) * (max(products, loads) + 2500)


def unsupported(case: Case, device: Device) -> str | None:
    if not (9, 0) <= device.capability < (10, 0):
        return "the products are written for Hopper's warp groups, compute capability 9.0"
    return None
