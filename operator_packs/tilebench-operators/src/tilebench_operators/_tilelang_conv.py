"""Convolution in TileLang in one to three dimensions: a channels-last pass, then an implicit GEMM fed by TMA.

Per tap: out[Cout, pixels] += weight_tap [Cout, Cin] · x[shifted pixels, Cin]ᵀ. A tap's tile of x is made of TMA boxes at
shifted coordinates, and the hardware fills with zeros what lies outside the image: that is the padding, for nothing.

The inputs have the pixels innermost, but Hopper's tensor cores read TF32 only with the reduction axis innermost, and a tile
of many short rows can't be swizzled along its pixels. So a first launch writes x channels-last, as cuDNN does, too; in
fp32 it rounds to TF32 as well. The same launch packs the weights, a tap of which lies scattered, as [taps, Cout, Cin].

A step of the main loop takes a column of taps, which differ in the row only: they share all rows of x but the outermost, and
multiply slices of one tile in shared memory. So L2, which would be the limit of narrow tiles, delivers a third.
One and two dimensions are three with leading extents of 1. Strides and groups (edge cases only) take one thread per result.
"""

import math

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Device, multiprocessors

# What operands are to T.gemm: float32 as such would be multiplied by Ampere's instructions, on Hopper too.
OPERAND = {torch.float32: T.tfloat32}
LINE = 64  # channels and pixels of a tile that turns around in shared memory
ROWS = 4  # of output channels that one block packs
ROOM = 225_000  # bytes of shared memory for the stages of a block on sm_90


@T.macro
def rounded(x, tf32: bool):
    """fp32 rounded to the 10 mantissa bits of TF32; the tensor core by itself would cut the others off. fp16 as it is."""
    if tf32:
        bits = (T.reinterpret(x, T.uint32) + T.uint32(0x1000)) & T.uint32(0xFFFFE000)
        return T.reinterpret(bits, T.float32)
    return x


@tilelang.jit
def prepare_kernel(dtype: torch.dtype, KD: int, KH: int, KW: int, wide: bool, threads: int):
    """last [B, pixels, P] of x [B, Cin, pixels], packed [KD · KW · KH, Cout, P] of weight [Cout, Cin, KD · KH · KW].

    The first blocks of axis 0 turn a tile of x each, the others pack ROWS output channels each, the taps of a column side by
    side. Channels from Cin on are zeros. Wide: pixels is a multiple of the elements of a 16-byte load.
    """
    B, Cin, Cout, P, pixels = T.dynamic("B, Cin, Cout, P, pixels")
    VEC = 16 // dtype.itemsize
    TAPS = KD * KH * KW
    tf32 = dtype == torch.float32

    @T.prim_func
    def prepare_convolution(
        x: T.Tensor((B, Cin, pixels), dtype),
        last: T.Tensor((B, pixels, P), dtype),
        weight: T.Tensor((Cout, Cin, TAPS), dtype),
        packed: T.Tensor((TAPS, Cout, P), dtype),
    ):
        with T.Kernel(
            T.ceildiv(pixels, LINE) + T.ceildiv(Cout, ROWS), T.ceildiv(P, LINE), B, threads=threads
        ) as (i, j, b):  # fmt: skip
            T.assume(P % VEC == 0)
            if wide:
                T.assume(pixels % VEC == 0)
            # The 16 bytes of a row are permuted by the row's number: a column's lie in different banks, too.
            tile = T.alloc_shared((LINE, LINE), dtype)
            if i < T.ceildiv(pixels, LINE):
                for c, word in T.Parallel(LINE, LINE // VEC):
                    values = T.alloc_local((VEC,), dtype)
                    for v in T.vectorized(VEC):
                        values[v] = T.cast(0, dtype)
                    if wide:
                        if j * LINE + c < Cin and i * LINE + word * VEC < pixels:
                            for v in T.vectorized(VEC):
                                values[v] = x[b, j * LINE + c, i * LINE + word * VEC + v]
                    else:
                        for v in T.unroll(VEC):
                            if j * LINE + c < Cin and i * LINE + word * VEC + v < pixels:
                                values[v] = x[b, j * LINE + c, i * LINE + word * VEC + v]
                    for v in T.vectorized(VEC):
                        tile[c, (word ^ (c // VEC)) * VEC + v] = values[v]
                for p, word in T.Parallel(LINE, LINE // VEC):
                    channels = T.alloc_local((VEC,), dtype)
                    for v in T.unroll(VEC):
                        channels[v] = rounded(tile[word * VEC + v, (p // VEC ^ word) * VEC + p % VEC], tf32)
                    if i * LINE + p < pixels and j * LINE + word * VEC < P:
                        for v in T.vectorized(VEC):
                            last[b, i * LINE + p, j * LINE + word * VEC + v] = channels[v]
            elif b == 0:
                first = (i - T.ceildiv(pixels, LINE)) * ROWS
                for o, c, t in T.Parallel(ROWS, LINE, TAPS):
                    if first + o < Cout and j * LINE + c < P:
                        packed[(t // (KH * KW) * KW + t % KW) * KH + t // KW % KH, first + o, j * LINE + c] = (
                            T.if_then_else(
                                j * LINE + c < Cin, rounded(weight[first + o, j * LINE + c, t], tf32), T.cast(0, dtype)
                            )
                        )

    return prepare_convolution


# Plain functions, so that their loops run while the kernel is built: as loops of the kernel they would not be pipelined.
def load_taps(packed, w_tile, column, o, c, KH, BM, BK):
    """Tiles [BM, BK] of packed [taps, Cout, P] for the taps of a column, one below the other."""
    for s in range(KH):
        T.evaluate(T.copy(packed[column * KH + s, o : o + BM, c : c + BK], w_tile[s * BM : s * BM + BM, 0:BK]))


def load_rows(last, x_tile, b, z, y, x, c, rows, BW, BK):
    """`rows` rows of BW pixels of last [B, D, H, W, P], one below the other."""
    for r in range(rows):
        T.evaluate(T.copy(last[b, z, y + r, x : x + BW, c : c + BK], x_tile[r * BW : r * BW + BW, 0:BK]))


def multiply_taps(w_tile, x_tile, total, KH, BM, BH, BW, BK, threads):
    """total [BM, BH · BW] += the products of a column: tap s begins s rows further down in the tile of x."""
    # Warp groups share x where there are channels enough for each, or else the weights.
    policy = T.GemmWarpPolicy.FullRow if threads <= BM * 2 else T.GemmWarpPolicy.FullCol
    for s in range(KH):
        weights, pixels = w_tile[s * BM : s * BM + BM, 0:BK], x_tile[s * BW : (s + BH) * BW, 0:BK]
        T.evaluate(T.gemm(weights, pixels, total, transpose_B=True, policy=policy))


@tilelang.jit
def tile_kernel(
    dtype: torch.dtype, taps: tuple, paddings: tuple, CHUNKS: int, BM: int, BH: int, BW: int, BK: int, stages: int,
    threads: int, aligned: bool,
):  # fmt: skip
    """A block goes through tiles of BM channels and BH × BW pixels of a plane of out [B, Cout, OD, OH, OW].

    last [B, D, H, W, P], P <= CHUNKS · BK channels, packed [taps, Cout, P]. Aligned: rows of out are whole 16 bytes, so that
    a tile can leave by TMA.
    """
    B, D, H, W, P, Cout, OD, OH, OW = T.dynamic("B, D, H, W, P, Cout, OD, OH, OW")
    KD, KH, KW = taps
    PD, PH, PW = paddings
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
        with T.Kernel(programs, threads=threads) as program:
            T.assume(programs > 0)
            T.assume(channel_tiles > 0)
            T.assume(width_tiles > 0)
            T.assume(height_tiles > 0)
            T.assume(OD > 0)
            w_tile = T.alloc_shared((KH * BM, BK), operand)
            x_tile = T.alloc_shared(((BH + KH - 1) * BW, BK), operand)
            out_tile = T.alloc_shared((BM, BH, BW), dtype)
            total = T.alloc_fragment((BM, BH * BW), T.float32)
            for turn in T.serial(T.ceildiv(tiles - program, programs)):
                # While a tile is stored, the first loads of the block's next one are on their way.
                tile = turn * programs + program
                # Channel tiles are the fastest, then come planes: neighbours in time read the same tiles of x in L2.
                o = tile % channel_tiles * BM
                z = tile // channel_tiles % OD
                x = tile // channel_tiles // OD % width_tiles * BW
                y = tile // channel_tiles // OD // width_tiles % height_tiles * BH
                b = tile // channel_tiles // OD // width_tiles // height_tiles
                T.clear(total)
                for step in T.Pipelined(KD * KW * CHUNKS, num_stages=stages):
                    column = step // CHUNKS
                    c = step % CHUNKS * BK
                    load_taps(packed, w_tile, column, o, c, KH, BM, BK)
                    load_rows(
                        last, x_tile, b, z + column // KW - PD, y - PH, x + column % KW - PW, c, BH + KH - 1, BW, BK
                    )
                    multiply_taps(w_tile, x_tile, total, KH, BM, BH, BW, BK, threads)
                if aligned:
                    T.copy(total, T.reshape(out_tile, (BM, BH * BW)))
                    T.copy(out_tile, out[b, o : o + BM, z, y : y + BH, x : x + BW])
                else:
                    for i, r, p in T.Parallel(BM, BH, BW):
                        if o + i < Cout and y + r < OH and x + p < OW:
                            out[b, o + i, z, y + r, x + p] = T.cast(total[i, r * BW + p], dtype)

    return convolve_tiles


@tilelang.jit
def window_kernel(dtype: torch.dtype, taps: tuple, threads: int):
    """Any convolution: one thread, one result; x [B, groups · Cin, D, H, W], weight [Cout, Cin, KD, KH, KW]."""
    B, C, D, H, W, Cout, Cin, OD, OH, OW = T.dynamic("B, C, D, H, W, Cout, Cin, OD, OH, OW")
    KD, KH, KW = taps

    @T.prim_func
    def convolve_window(
        x: T.Tensor((B, C, D, H, W), dtype),
        weight: T.Tensor((Cout, Cin, KD, KH, KW), dtype),
        out: T.Tensor((B, Cout, OD, OH, OW), dtype),
        group_rows: T.int32,
        depth_stride: T.int32,
        height_stride: T.int32,
        stride: T.int32,
        depth_padding: T.int32,
        height_padding: T.int32,
        padding: T.int32,
    ):
        with T.Kernel(T.ceildiv(OD * OH * OW, threads), Cout, B, threads=threads) as (block, o, b):
            T.assume(group_rows > 0)
            T.assume(OW > 0)
            T.assume(OH > 0)
            pixel = block * threads + T.get_thread_binding()
            total = T.alloc_var(T.float32, init=0)
            if pixel < OD * OH * OW:
                z = pixel // OW // OH * depth_stride - depth_padding
                y = pixel // OW % OH * height_stride - height_padding
                column = pixel % OW * stride - padding
                for c, r, s, t in T.grid(Cin, KD, KH, KW):
                    if z + r >= 0 and z + r < D and y + s >= 0 and y + s < H and column + t >= 0 and column + t < W:
                        total += T.cast(x[b, o // group_rows * Cin + c, z + r, y + s, column + t], T.float32) * T.cast(
                            weight[o, c, r, s, t], T.float32
                        )
                out[b, o, pixel // OW // OH, pixel // OW % OH, pixel % OW] = T.cast(total, dtype)

    return convolve_window


def convolution(
    input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int, *,
    BM: int, BH: int, BW: int, BK: int, stages: int, threads: int,
) -> torch.Tensor:  # fmt: skip
    """Return out [batch, Cout, *] of input [batch, Cin, *] and weight [Cout, Cin / groups, *], with 1 to 3 extents each."""
    batch, in_channels, *extents = input.shape
    out_channels, group_channels, *taps = weight.shape
    out_extents = [(extent + 2 * padding - k) // stride + 1 for extent, k in zip(extents, taps, strict=True)]
    out = torch.empty((batch, out_channels, *out_extents), dtype=input.dtype, device=input.device)
    missing = 3 - len(extents)
    extents, taps = [1] * missing + extents, (*[1] * missing, *taps)
    paddings = (*[0] * missing, *[padding] * (3 - missing))
    out_depth, out_height, out_width = out_extents = [1] * missing + out_extents
    results = out.view(batch, out_channels, *out_extents)
    if stride != 1 or groups != 1:
        strides = (*[1] * missing, *[stride] * (3 - missing))
        window_kernel(input.dtype, taps, 128)(
            input.view(batch, in_channels, *extents), weight.view(out_channels, group_channels, *taps), results,
            out_channels // groups, *strides, *paddings,
        )  # fmt: skip
        return out
    align = 16 // input.element_size()
    pitch = -(-in_channels // align) * align  # TMA wants strides of whole 16 bytes
    last = torch.empty((batch, *extents, pitch), dtype=input.dtype, device=input.device)
    packed = torch.empty((math.prod(taps), out_channels, pitch), dtype=input.dtype, device=input.device)
    pixels = math.prod(extents)
    prepare_kernel(input.dtype, *taps, pixels % align == 0, 256)(
        input.view(batch, in_channels, pixels), last.view(batch, pixels, pitch),
        weight.view(out_channels, in_channels, -1), packed,
    )  # fmt: skip
    channel_tiles, width_tiles, height_tiles = -(-out_channels // BM), -(-out_width // BW), -(-out_height // BH)
    tiles = batch * channel_tiles * out_depth * width_tiles * height_tiles
    stage_bytes = (taps[1] * BM + (BH + taps[1] - 1) * BW) * BK * input.element_size()
    stages = max(1, min(stages, ROOM // stage_bytes))  # tall windows bring more taps and rows per step
    tile_kernel(input.dtype, taps, paddings, -(-pitch // BK), BM, BH, BW, BK, stages, threads, out_width % align == 0)(
        last,
        packed,
        results,
        min(tiles, multiprocessors(input.device)),
        tiles,
        channel_tiles,
        width_tiles,
        height_tiles,
    )
    return out


def box(height: int, width: int, pixels: int) -> tuple[int, int]:
    """BH, BW with BH · BW = pixels that cover [height, width] with the fewest boxes; of those the tallest reads least twice."""
    widths = [w for w in (16, 32, 64, 128) if w <= pixels]
    return min(((pixels // w, w) for w in widths), key=lambda b: (-(-height // b[0]) * -(-width // b[1]), b[1]))


def unsupported(case: Case, device: Device) -> str | None:
    if device.capability < (9, 0):
        return "the tiles come by TMA, which needs compute capability 9.0"
    return None
