"""Convolution of images and volumes in TileLang: an implicit GEMM fed by TMA, which lays out its input itself.

Per tap: out[Cout, pixels] += weight_tap [Cout, Cin] · x[shifted pixels, Cin]ᵀ. A tap's tile of x is a TMA box at a shifted
coordinate, and the hardware fills with zeros what lies outside the image: that is the padding, for nothing.

The inputs have the pixels innermost, but Hopper's tensor cores read TF32 only with the reduction axis innermost. So x is written
channels-last and the weights as [taps, Cout, Cin]; in fp32 both are rounded to TF32. All of this is one launch: what the
first tiles read is written before the grid's barrier, what is left of x while tensor cores multiply, by warps of their own.

A step of the main loop takes a column of taps, which differ in the row only: they share all rows of x but the outermost, and
multiply slices of one tile in shared memory. What L2 delivers would be the limit otherwise; for the same reason tiles are as
large as registers and shared memory allow. Their heights are free, so that all multiprocessors get about the same work.

Whatever isn't made of whole 16 bytes, strides and groups (edge cases only), and GPUs without WGMMA are left to `_tilelang_conv`.
"""

import math

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, multiprocessors

from tilebench_operators._tilelang_conv import OPERAND
from tilebench_operators._tilelang_conv import convolution as general_convolution
from tilebench_operators._tilelang_wgmma import has_wgmma

ROOM = 229_376  # bytes of shared memory for stages and results, beside barriers, on sm_90
LINE = 128  # bytes of channels that eight threads write side by side
UNIT = 64  # pixels that a warp turns at a time
BAND = 2048  # pixels of a plane: the bands of all planes are turned one after the other
BW = 16  # pixels of a tile's row: the grids' widths are multiples of it
UNCHECKED = {tilelang.PassConfigKey.TL_DISABLE_SAFE_MEMORY_ACCESS: True}  # every index is in range

# What threads have written is read by TMA, within one launch: TileLang's own fence speaks of shared memory only.
PRELUDE = """static __device__ __forceinline__ void fence_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}
"""


# A plain function, so that its loop runs while the kernel is built.
def multiply_taps(w_tile, x_tile, slot, total, KH, BM, BK, o, y, rows):
    """total [64, rows · BW] += the products of a column: tap s begins s rows further down in the tile of x."""
    for s in range(KH):
        weights = w_tile[slot, s * BM + o : s * BM + o + 64, 0:BK]
        pixels = x_tile[slot, (s + y) * BW : (s + y + rows) * BW, 0:BK]
        T.evaluate(T.wgmma_gemm(weights, pixels, total, transpose_B=True, policy=T.GemmWarpPolicy.FullRow))


def parts(dtype: torch.dtype, bm: int, bh: int, threads: int) -> tuple[int, int, bool]:
    """How many rows of pixels a warp group has, in how many parts they leave, and whether shared memory holds all of them at once.

    Warp groups take 64 channels each, or else the halves of the rows. An odd number of rows of 16 pixels is an odd multiple of
    32 bytes, so that channels lie in different banks; parts have one. Where warp groups have all rows, parts of fp32 share one
    buffer, halves or thirds then.
    """
    rows = bh * bm * 2 // threads
    if dtype != torch.float32 or rows < bh:
        return rows, rows & -rows, True
    return rows, 2 if rows % 2 == 0 else 3 if rows == 15 else 1, False


@tilelang.jit(pass_configs=UNCHECKED)
def tile_kernel(
    dtype: torch.dtype, taps: tuple, paddings: tuple, CHUNKS: int, BM: int, BH: int, BK: int, stages: int, threads: int,
    SPLIT: int,
):  # fmt: skip
    """A block goes through tiles of BM channels and BH × BW pixels of a plane of out [B, Cout, OD, OH, OW].

    x_words [B, Cin, XW] is written to last_words [B, pixels, LW], which is last [B, D, H, W, P] in words of 32 bits, weight
    [Cout, Cin · KD · KH · KW] to packed_words [KD · KW · KH, Cout, LW], which is packed [taps, Cout, P]. P = Cin <= CHUNKS · BK;
    Cin, planes of x and rows of out are whole 16 bytes.

    First all threads write the weights and the bands of x that the first tile of each block reads, and the grid waits.
    Then `threads` threads multiply, one warp loads a ring of stages, and three warps write what is left of x, band by band;
    they count what they have done, and the loading warp waits for the bands of its tile. No band waits for anything.

    A stage comes in two boxes, for which its buffers need three and four axes; T.Pipelined would know them by two only and
    would fetch row by row, which takes longer than the products.
    """
    B, D, H, W, P, Cout, OD, OH, OW = T.dynamic("B, D, H, W, P, Cout, OD, OH, OW")
    XW, LW, WL, pixels, bands, quads = T.dynamic("XW, LW, WL, pixels, bands, quads")
    KD, KH, KW = taps
    PD, PH, PW = paddings
    ROWS = BH + KH - 1
    COLUMNS = KD * KW // SPLIT
    STEPS = COLUMNS * CHUNKS
    LATE = stages > 3  # whether a stage may wait for the next one before it is free
    GROUPS = threads // 128
    GROUP_ROWS, PARTS, whole = parts(dtype, BM, BH, threads)
    HEIGHT = GROUP_ROWS // PARTS
    PIXELS = HEIGHT * BW
    operand = OPERAND.get(dtype, dtype)
    VEC = 16 // dtype.itemsize
    PACK = 4 // dtype.itemsize  # values of a word
    TAPS = KD * KH * KW
    CHANNELS = LINE // dtype.itemsize
    SQUARES = UNIT // (4 * VEC)  # of VEC × VEC values, per thread
    WARPS = threads // 32 + 4
    tf32 = dtype == torch.float32

    @T.macro
    def rounded_word(word):
        """fp32 rounded to TF32, as in `_tilelang_conv`; a word of two 16-bit values as it is."""
        if tf32:
            return (word + T.uint32(0x1000)) & T.uint32(0xFFFFE000)
        return word

    @T.macro
    def pack_weights(job, lane, weight, packed_words):
        """A thread writes 16 bytes of channels of a tap; the taps of a column lie side by side."""
        # Variables, or else every use of them would repeat the divisions.
        tap = T.alloc_var(T.int32)
        o = T.alloc_var(T.int32)
        group = T.alloc_var(T.int32)
        first = T.alloc_var(T.int32)
        packed_tap = T.alloc_var(T.int32)
        tap = (job * 32 + lane) % TAPS
        group = (job * 32 + lane) // TAPS
        o = group // (LW // 4)
        group = group - o * (LW // 4)
        first = group * (VEC * TAPS) + tap
        packed_tap = (tap // (KH * KW) * KW + tap % KW) * KH + tap // KW % KH
        words = T.alloc_local((4,), T.uint32)
        if o < Cout:
            for w in T.unroll(4):
                if tf32:
                    words[w] = rounded_word(T.reinterpret(weight[o, first + w * TAPS], T.uint32))
                else:
                    low = T.reinterpret(weight[o, first + 2 * w * TAPS], T.uint16)
                    high = T.reinterpret(weight[o, first + (2 * w + 1) * TAPS], T.uint16)
                    words[w] = T.cast(low, T.uint32) | (T.cast(high, T.uint32) << T.uint32(16))
            T.stg128(packed_words[packed_tap, o, group * 4], words[T.Ramp(0, 1, 4)])

    @T.macro
    def turn_unit(unit, lane, lines, x_words, last_words):
        """A warp writes UNIT pixels × LINE bytes of channels. A thread loads squares of VEC × VEC values by 16 bytes, turns
        them in registers, and stores them by 16 bytes; eight threads write a line."""
        line = T.alloc_var(T.int32)
        plane = T.alloc_var(T.int32)
        in_plane = T.alloc_var(T.int32)
        b = T.alloc_var(T.int32)
        pixel = T.alloc_var(T.int32)
        quad = T.alloc_var(T.int32)
        plane = unit // lines
        line = unit - plane * lines
        in_plane = plane // (BAND // UNIT) // (B * D)
        b = plane // (BAND // UNIT) - in_plane * (B * D)
        in_plane = in_plane * BAND + plane % (BAND // UNIT) * UNIT + lane // 8 * VEC
        plane = b
        b = plane // D
        pixel = (plane - b * D) * (H * W) + in_plane
        quad = pixel // VEC
        channel = line * CHANNELS + lane % 8 * VEC
        raw = T.alloc_local((SQUARES, VEC, 4), T.uint32)
        turned = T.alloc_local((4,), T.uint32)
        if channel < P:
            for k in T.unroll(SQUARES):
                if in_plane + k * (4 * VEC) < H * W:
                    for c in T.unroll(VEC):
                        for w in T.vectorized(4):
                            raw[k, c, w] = x_words[b, channel + c, quad * 4 + k * 16 + w]
            for k in T.unroll(SQUARES):
                if in_plane + k * (4 * VEC) < H * W:
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
                        T.stg128(last_words[b, pixel + k * (4 * VEC) + p, channel // PACK], turned[T.Ramp(0, 1, 4)])

    @T.macro
    def store_part(box, out, b, o, z, y, x):
        """By TMA, which leaves out what lies outside. Where blocks share a tile each adds to it."""
        if SPLIT > 1:
            T.atomic_add(out[b, o : o + 64, z, y : y + HEIGHT, x : x + BW], box, annotations={"use_tma": True})
        else:
            T.tma_copy(box, out[b, o : o + 64, z, y : y + HEIGHT, x : x + BW])

    @T.macro
    def multiply(
        group, program, programs, turns, channel_tiles, width_tiles, height_tiles, OD, w_tile, x_tile, out_tile, out_boxes,
        full, empty, out,
    ):  # fmt: skip
        """What a warp group does. While one stores its part of a tile, another may go on multiplying."""
        group_channel = group % (BM // 64) * 64
        group_row = group // (BM // 64) * GROUP_ROWS
        total = T.alloc_fragment((64, GROUP_ROWS * BW), T.float32)
        for turn in T.serial(turns):
            tile = (turn * programs + program) // SPLIT
            o = tile % channel_tiles * BM + group_channel
            z = tile // channel_tiles % OD
            x = tile // channel_tiles // OD % width_tiles * BW
            y = tile // channel_tiles // OD // width_tiles % height_tiles * BH + group_row
            b = tile // channel_tiles // OD // width_tiles // height_tiles
            T.clear(total)
            for step in T.serial(STEPS):
                slot = (turn * STEPS + step) % stages
                T.mbarrier_wait_parity(full[slot], (turn * STEPS + step) // stages % 2)
                multiply_taps(w_tile, x_tile, slot, total, KH, BM, BK, group_channel, group_row, GROUP_ROWS)
                if LATE:
                    # The products of this step go on while those of the step before make room.
                    T.wait_wgmma(KH)
                    if step > 0:
                        T.barrier_arrive(empty[(turn * STEPS + step - 1) % stages])
                else:
                    T.wait_wgmma(0)
                    T.barrier_arrive(empty[slot])
            if LATE:
                T.wait_wgmma(0)
                T.barrier_arrive(empty[(turn * STEPS + STEPS - 1) % stages])
            # While a tile leaves, the loads and products of the next one are under way.
            if whole:
                T.tma_store_wait(0)
                for part, i, p in T.Parallel(PARTS, 64, PIXELS):
                    out_tile[group, part, i, p] = T.cast(total[i, part * PIXELS + p], dtype)
                for part in T.unroll(PARTS):
                    store_part(out_boxes[group, part, 0:64, 0:HEIGHT, 0:BW], out, b, o, z, y + part * HEIGHT, x)
            else:
                for part in T.unroll(PARTS):
                    T.tma_store_wait(0)
                    for i, p in T.Parallel(64, PIXELS):
                        out_tile[group, 0, i, p] = T.cast(total[i, part * PIXELS + p], dtype)
                    store_part(out_boxes[group, 0, 0:64, 0:HEIGHT, 0:BW], out, b, o, z, y + part * HEIGHT, x)
        T.tma_store_wait(0)

    @T.prim_func
    def convolve_tiles(
        x_words: T.Tensor((B, P, XW), T.uint32),
        last_words: T.Tensor((B, pixels, LW), T.uint32),
        last: T.Tensor((B, D, H, W, P), operand),
        weight: T.Tensor((Cout, WL), dtype),
        packed_words: T.Tensor((TAPS, Cout, LW), T.uint32),
        packed: T.Tensor((TAPS, Cout, P), operand),
        done: T.Tensor((bands,), T.int32),
        out: T.Tensor((B, Cout, OD, OH, OW), dtype),
        out_quads: T.Tensor((quads, 4), dtype),
        programs: T.int32,
        tiles: T.int32,
        channel_tiles: T.int32,
        width_tiles: T.int32,
        height_tiles: T.int32,
        first_bands: T.int32,
    ):
        with T.Kernel(programs, threads=threads + 128, prelude=PRELUDE) as program:
            T.assume(programs > 0)
            T.assume(channel_tiles > 0)
            T.assume(width_tiles > 0)
            T.assume(height_tiles > 0)
            T.assume(OD > 0)
            T.assume(D > 0)
            T.assume(B > 0)
            T.assume(P > 0)
            T.assume(XW % 4 == 0)
            T.assume(LW % 4 == 0)
            w_tile = T.alloc_shared((stages, KH * BM, BK), operand)
            x_tile = T.alloc_shared((stages, ROWS * BW, BK), operand)
            out_tile = T.alloc_shared((GROUPS, PARTS if whole else 1, 64, PIXELS), dtype)
            out_boxes = T.reshape(out_tile, (GROUPS, PARTS if whole else 1, 64, HEIGHT, BW))
            full = T.alloc_barrier([1] * stages)
            empty = T.alloc_barrier([threads] * stages)
            w_boxes = T.reshape(w_tile, (stages, KH, BM, BK))
            x_boxes = T.reshape(x_tile, (stages, ROWS, BW, BK))
            thread = T.get_thread_binding()
            turns = (tiles - program + programs - 1) // programs
            # Variables, or else every use of them would repeat what they stand for.
            lines = T.alloc_var(T.int32)
            band_units = T.alloc_var(T.int32)
            weight_jobs = T.alloc_var(T.int32)
            job = T.alloc_var(T.int32)
            lines = T.ceildiv(P, CHANNELS)
            band_units = B * D * (BAND // UNIT) * lines
            weight_jobs = T.ceildiv(TAPS * Cout * (LW // 4), 32)
            job = program * (threads + 128) + thread
            while job < bands:
                done[job] = 0
                job += programs * (threads + 128)
            if SPLIT > 1:
                job = program * (threads + 128) + thread
                while job < quads:
                    for v in T.vectorized(4):
                        out_quads[job, v] = T.cast(0, dtype)
                    job += programs * (threads + 128)
            job = thread // 32 * programs + program
            while job < weight_jobs + first_bands * band_units:
                if job < weight_jobs:
                    pack_weights(job, thread % 32, weight, packed_words)
                else:
                    turn_unit(job - weight_jobs, thread % 32, lines, x_words, last_words)
                job += programs * WARPS
            T.call_extern("void", "fence_async_global")
            T.sync_grid()
            T.call_extern("void", "fence_async_global")
            if thread >= threads + 32:
                job = first_bands * band_units + (thread - threads - 32) // 32 * programs + program
                while job < bands * band_units:
                    turn_unit(job, thread % 32, lines, x_words, last_words)
                    T.call_extern("void", "fence_async_global")
                    T.sync_warp()
                    if thread % 32 == 0:
                        T.call_extern("void", "__threadfence")
                        T.atomic_add(done[job // band_units], 1)
                    job += programs * 3
            elif thread >= threads:
                ready = T.alloc_var(T.int32)
                wanted = T.alloc_var(T.int32)
                band = T.alloc_var(T.int32)
                o = T.alloc_var(T.int32)
                z = T.alloc_var(T.int32)
                x = T.alloc_var(T.int32)
                y = T.alloc_var(T.int32)
                b = T.alloc_var(T.int32)
                ready = first_bands
                for turn in T.serial(turns):
                    tile = (turn * programs + program) // SPLIT
                    first = (turn * programs + program) % SPLIT * COLUMNS
                    # Channel tiles are the fastest, then come planes: neighbours in time read the same tiles of x in L2.
                    o = tile % channel_tiles * BM
                    z = tile // channel_tiles % OD - PD
                    x = tile // channel_tiles // OD % width_tiles * BW - PW
                    y = tile // channel_tiles // OD // width_tiles % height_tiles * BH - PH
                    b = tile // channel_tiles // OD // width_tiles // height_tiles
                    # A look at a band takes as long as half a step: each lane looks at another band.
                    wanted = T.ceildiv(T.min(y + ROWS, H) * W, BAND)
                    band = ready + thread % 32
                    while band < wanted:
                        if T.atomic_load(done[band], memory_order="acquire") >= band_units:
                            band += 32
                    T.sync_warp()
                    ready = T.max(ready, wanted)
                    T.call_extern("void", "fence_async_global")
                    # Unrolled, this loop would be long code that a small image waits for.
                    for step in T.unroll(STEPS, annotations={"pragma_unroll_factor": 1}):
                        slot = (turn * STEPS + step) % stages
                        T.mbarrier_wait_parity(empty[slot], (turn * STEPS + step) // stages % 2 ^ 1)
                        column = first + step // CHUNKS
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
            elif GROUPS > 1 and thread >= 128:
                multiply(
                    1, program, programs, turns, channel_tiles, width_tiles, height_tiles, OD, w_tile, x_tile, out_tile,
                    out_boxes, full, empty, out,
                )  # fmt: skip
            else:
                multiply(
                    0, program, programs, turns, channel_tiles, width_tiles, height_tiles, OD, w_tile, x_tile, out_tile,
                    out_boxes, full, empty, out,
                )  # fmt: skip

    return convolve_tiles


def stages_that_fit(dtype: torch.dtype, taps: tuple, bm: int, bh: int, bk: int, threads: int) -> int:
    """How many stages shared memory holds beside the tile of results."""
    _, count, whole = parts(dtype, bm, bh, threads)
    results = bm * bh * BW // (1 if whole else count)
    stage = (taps[1] * bm + (bh + taps[1] - 1) * BW) * bk
    return (ROOM // dtype.itemsize - results) // stage


def convolution(
    input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int, *,
    BM: int, BH: int, BK: int, stages: int, threads: int, SPLIT: int = 1,
) -> torch.Tensor:  # fmt: skip
    """Return out [batch, Cout, *] of input [batch, Cin, *] and weight [Cout, Cin / groups, *], with 2 or 3 extents each."""
    batch, in_channels, *extents = input.shape
    out_channels, _, *taps = weight.shape
    align = 16 // input.element_size()
    plane = math.prod(extents[-2:])
    out_extents = [extent + 2 * padding - k + 1 for extent, k in zip(extents, taps, strict=True)]
    whole = in_channels % align == 0 and plane % align == 0 and out_extents[-1] % align == 0
    whole = whole and input.data_ptr() % 16 == 0 and weight.data_ptr() % 16 == 0
    missing = 3 - len(extents)
    all_taps = (*[1] * missing, *taps)
    fitting = stages_that_fit(input.dtype, all_taps, BM, BH, BK, threads)  # tall windows bring more taps and rows
    if stride != 1 or groups != 1 or not whole or fitting < 2 or not has_wgmma():
        return general_convolution(
            input, weight, stride, padding, groups, BM=64, BH=4, BW=16, BK=8 * align, stages=4, threads=128
        )
    extents, paddings = [1] * missing + extents, (*[0] * missing, *[padding] * (3 - missing))
    out_depth, out_height, out_width = [1] * missing + out_extents
    out = torch.empty((batch, out_channels, *out_extents), dtype=input.dtype, device=input.device)
    last = torch.empty((batch, *extents, in_channels), dtype=input.dtype, device=input.device)
    packed = torch.empty((math.prod(taps), out_channels, in_channels), dtype=input.dtype, device=input.device)
    channel_tiles, width_tiles, height_tiles = -(-out_channels // BM), -(-out_width // BW), -(-out_height // BH)
    split = SPLIT if all_taps[0] * all_taps[2] % SPLIT == 0 else 1
    tiles = split * batch * channel_tiles * out_depth * width_tiles * height_tiles
    programs = multiprocessors(input.device)  # one block each: they wait for one another
    bands = -(-plane // BAND)
    # The rows that the last of the first tiles reads; with several images the tiles of any may be among them.
    tile_row = (min(programs, tiles) - 1) // (split * channel_tiles * out_depth * width_tiles)
    rows = min(extents[1], min(tile_row + 1, height_tiles) * BH + taps[-2] - 1 - paddings[1])
    first_bands = min(bands, -(-max(rows, 0) * extents[2] // BAND))
    tile_kernel(input.dtype, all_taps, paddings, -(-in_channels // BK), BM, BH, BK, max(2, min(stages, fitting)), threads, split)(
        input.view(batch, in_channels, -1).view(torch.uint32),
        last.view(batch, -1, in_channels).view(torch.uint32), last,
        weight.view(out_channels, -1), packed.view(torch.uint32), packed,
        torch.empty(bands, dtype=torch.int32, device=input.device),
        out.view(batch, out_channels, out_depth, out_height, out_width), out.view(-1, 4),
        programs, tiles, channel_tiles, width_tiles, height_tiles, first_bands,
    )  # fmt: skip
    return out


def work(case: Case, taps: tuple, bm: int, bh: int, stages: int, split: int = 1) -> float:
    """Roughly the cycles of the H200's busiest multiprocessor, in which tiles of bm channels and bh × 16 pixels take turns.

    A tile takes as long as its products, 2048 a cycle in fp16, or as its loads, 32 bytes a cycle if all multiprocessors load.
    Sums that `split` blocks share are added in L2, 12 bytes a cycle. Less than four stages cost a little.
    """
    width = case["W"] or case["H"]
    tiles = split * -(-case["Cout"] // bm) * case.params.get("D", 1) * -(-case["H"] // bh) * -(-width // BW)
    depth = case["Cin"] * case.dtype_size / split
    products = depth * math.prod(taps) * bm * bh * BW / 4096
    loads = depth * (math.prod(taps) * bm + taps[0] * taps[2] * (bh + taps[1] - 1) * BW) / 32
    additions = bm * bh * BW * case.dtype_size / 12 if split > 1 else 0
    return -(-tiles // 132) * (max(products, loads) * (1.04 if stages < 4 else 1) + additions + 2500)
