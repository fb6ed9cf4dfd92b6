"""Convolution in Triton in one to three dimensions: a channels-last pass, then an implicit GEMM fed by TMA.

Per tap: out[Cout, pixels] += weight_tap [Cout, Cin] @ x[shifted pixels, Cin]ᵀ. A tap's tile of x is the same TMA box at a
shifted coordinate, and the hardware fills with zeros what lies outside the image: that is the padding, for nothing.

The inputs have the pixels innermost. TMA starts a box only at whole 16 bytes of the innermost axis, which a shift by one
pixel breaks, and the tensor cores read TF32 only with the reduction axis innermost. So a first launch writes x channels-last,
as cuDNN does, too: 2 more passes over x, the price of a main loop without address arithmetic, masks and shuffles. In fp32
it rounds to TF32 as well. The same launch packs the weights, a tap of which lies scattered, as [taps, Cout, Cin].

One and two dimensions are three with leading extents of 1. Strides and groups (edge cases only) load by pointers instead.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def to_operand(x):
    """fp32 rounded to the 10 mantissa bits of TF32; the tensor core by itself would cut the others off. fp16 as it is."""
    if x.dtype == tl.float32:
        x = ((x.to(tl.uint32, bitcast=True) + 0x1000) & 0xFFFFE000).to(tl.float32, bitcast=True)
    return x


@triton.jit
def pack_row(weight_ptr, packed_ptr, row, channels, in_channels, out_channels, pitch, TAPS: tl.constexpr):
    """One row of weight [Cout, Cin, TAPS] to packed [TAPS, Cout, pitch]."""
    taps = tl.arange(0, triton.next_power_of_2(TAPS))
    mask = (channels[:, None] < in_channels) & (taps[None, :] < TAPS)
    weight = tl.load(weight_ptr + (row * in_channels + channels[:, None]) * TAPS + taps[None, :], mask=mask)
    targets = (taps[None, :] * out_channels + row) * pitch + channels[:, None]
    tl.store(packed_ptr + targets, to_operand(weight), mask=mask)


@triton.jit
def transpose_tile(x_ptr, last_ptr, batch, positions, channels, pixels, in_channels, pitch):
    """One tile of x [batch, Cin, pixels] to last [batch, pixels, pitch]; both sides move 16 bytes per thread."""
    mask = (channels[:, None] < in_channels) & (positions[None, :] < pixels)
    sources = (batch * in_channels + channels[:, None]) * pixels + positions[None, :]
    x = tl.load(x_ptr + sources, mask=mask, eviction_policy="evict_first")  # leaves the L2 cache to `last`
    targets = (batch * pixels + positions[:, None]) * pitch + channels[None, :]
    tl.store(last_ptr + targets, tl.trans(to_operand(x)), mask=tl.trans(mask))


@triton.jit
def prepare_kernel(
    x_ptr,
    last_ptr,
    weight_ptr,
    packed_ptr,
    pixels,
    in_channels,
    out_channels,
    pitch,
    TAPS: tl.constexpr,
    BC: tl.constexpr,
    BP: tl.constexpr,
):
    """Pack weight and transpose x. Programs: (Cout rows to pack, then pixel tiles of BP; channel tiles of BC; batch)."""
    channels = tl.program_id(1) * BC + tl.arange(0, BC)
    row = tl.program_id(0)
    batch = tl.program_id(2).to(tl.int64)
    if row >= out_channels:
        positions = (row - out_channels) * BP + tl.arange(0, BP)
        transpose_tile(x_ptr, last_ptr, batch, positions, channels, pixels, in_channels, pitch)
    elif batch == 0:
        pack_row(weight_ptr, packed_ptr, row, channels, in_channels, out_channels, pitch, TAPS)


@triton.jit
def tile_kernel(
    x_desc,
    weight_desc,
    out_ptr,
    out_depth,
    out_height,
    out_width,
    in_channels,
    out_channels,
    depth_padding,
    height_padding,
    padding,
    HEIGHT_TAPS: tl.constexpr,
    WIDTH_TAPS: tl.constexpr,
    TAPS: tl.constexpr,
    BM: tl.constexpr,
    BH: tl.constexpr,
    BW: tl.constexpr,
    BK: tl.constexpr,
):
    """One program, one tile of BM channels and BH × BW pixels of one plane of out [batch, Cout, D, H, W].

    Boxes: x [1, 1, BH, BW, BK] of [batch, D, H, W, Cin], weight [1, BM, BK] of [TAPS, Cout, Cin].
    """
    # Channel tiles are the fastest, then come planes, so that neighbours in time read the same tiles of x in L2.
    channel_tiles = tl.cdiv(out_channels, BM)
    width_tiles = tl.cdiv(out_width, BW)
    row = tl.program_id(0) % channel_tiles * BM
    z = tl.program_id(0) // channel_tiles % out_depth
    tile = tl.program_id(0) // channel_tiles // out_depth
    x = tile % width_tiles * BW
    y = tile // width_tiles * BH
    batch = tl.program_id(1)
    chunks = tl.cdiv(in_channels, BK)
    acc = tl.zeros([BM, BH * BW], tl.float32)
    for step in range(TAPS * chunks):
        tap = step // chunks
        channel = step % chunks * BK
        source_z = z + tap // (HEIGHT_TAPS * WIDTH_TAPS) - depth_padding
        source_y = y + tap // WIDTH_TAPS % HEIGHT_TAPS - height_padding
        source_x = x + tap % WIDTH_TAPS - padding
        weight = weight_desc.load([tap, row, channel]).reshape(BM, BK)
        pixels = x_desc.load([batch, source_z, source_y, source_x, channel]).reshape(BH * BW, BK)
        acc = tl.dot(weight, pixels.T, acc)
    rows = row + tl.arange(0, BM)[:, None]
    xs = x + tl.arange(0, BH * BW)[None, :] % BW
    ys = y + tl.arange(0, BH * BW)[None, :] // BW
    plane = (batch * out_channels + rows).to(tl.int64) * out_depth + z
    targets = plane * (out_height * out_width) + (ys * out_width + xs)
    mask = (rows < out_channels) & (ys < out_height) & (xs < out_width)
    tl.store(out_ptr + targets, acc.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def pointer_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    depth,
    height,
    width,
    out_depth,
    out_height,
    out_width,
    in_channels,
    out_channels,
    depth_padding,
    height_padding,
    padding,
    depth_stride,
    height_stride,
    stride,
    groups,
    HEIGHT_TAPS: tl.constexpr,
    WIDTH_TAPS: tl.constexpr,
    TAPS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Any convolution, from x [batch, groups · Cin, D, H, W] and weight [groups · Cout, Cin, TAPS] by masked loads."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    pixels = tl.program_id(1) * BN + tl.arange(0, BN)
    plane = tl.program_id(2).to(tl.int64)  # batch · groups + group
    weight_rows = tl.program_id(2) % groups * out_channels + rows
    columns = pixels % out_width * stride - padding
    out_rows = pixels // out_width % out_height * height_stride - height_padding
    out_planes = pixels // out_width // out_height * depth_stride - depth_padding
    acc = tl.zeros([BM, BN], tl.float32)
    for tap in range(TAPS):
        sources_z = out_planes + tap // (HEIGHT_TAPS * WIDTH_TAPS)
        sources_y = out_rows + tap // WIDTH_TAPS % HEIGHT_TAPS
        sources_x = columns + tap % WIDTH_TAPS
        inside = (sources_z >= 0) & (sources_z < depth) & (sources_y >= 0) & (sources_y < height)
        inside = inside & (sources_x >= 0) & (sources_x < width)
        sources = (sources_z * height + sources_y) * width + sources_x
        for start in range(0, in_channels, BK):
            channels = start + tl.arange(0, BK)
            weight = tl.load(
                weight_ptr + (weight_rows[:, None] * in_channels + channels[None, :]) * TAPS + tap,
                mask=(rows[:, None] < out_channels) & (channels[None, :] < in_channels),
                other=0,
            )
            x = tl.load(
                x_ptr + (plane * in_channels + channels[:, None]) * (depth * height * width) + sources[None, :],
                mask=(channels[:, None] < in_channels) & inside[None, :],
                other=0,
            )
            acc = tl.dot(weight, x, acc)
    out_pixels = out_depth * out_height * out_width
    tl.store(
        out_ptr + (plane * out_channels + rows[:, None]) * out_pixels + pixels[None, :],
        acc.to(out_ptr.dtype.element_ty),
        mask=(rows[:, None] < out_channels) & (pixels[None, :] < out_pixels),
    )


def convolution(
    input: torch.Tensor,
    weight: torch.Tensor,
    stride: int,
    padding: int,
    groups: int,
    *,
    BM: int,
    BH: int,
    BW: int,
    BK: int,
    num_warps: int,
    num_stages: int,
) -> torch.Tensor:
    """Return out [batch, Cout, *] of input [batch, Cin, *] and weight [Cout, Cin / groups, *], with 1 to 3 extents each."""
    batch, in_channels, *extents = input.shape
    out_channels, group_channels, *taps = weight.shape
    out_extents = [(extent + 2 * padding - k) // stride + 1 for extent, k in zip(extents, taps, strict=True)]
    out = torch.empty((batch, out_channels, *out_extents), dtype=input.dtype, device=input.device)
    missing = 3 - len(extents)
    out_depth, out_height, out_width = out_shape = [1] * missing + out_extents
    shape, taps = [1] * missing + extents, [1] * missing + taps
    paddings = [0] * missing + [padding] * len(extents)
    all_taps = taps[0] * taps[1] * taps[2]
    if stride != 1 or groups != 1:
        strides = [1] * missing + [stride] * len(extents)
        rows = out_channels // groups
        grid = (triton.cdiv(rows, 64), triton.cdiv(out_depth * out_height * out_width, 64), batch * groups)
        pointer_kernel[grid](
            input, weight, out, *shape, *out_shape, group_channels, rows, *paddings, *strides, groups,
            HEIGHT_TAPS=taps[1], WIDTH_TAPS=taps[2], TAPS=all_taps, BM=64, BN=64, BK=32, num_warps=4,
        )  # fmt: skip
        return out
    align = 16 // input.element_size()
    pitch = triton.cdiv(in_channels, align) * align  # TMA wants strides of whole 16 bytes
    pixels = shape[0] * shape[1] * shape[2]
    last = torch.empty((batch, *shape, pitch), dtype=input.dtype, device=input.device)
    packed = torch.empty((all_taps, out_channels, pitch), dtype=input.dtype, device=input.device)
    BC, BP = min(128, max(16, triton.next_power_of_2(in_channels))), 128 // input.element_size()
    grid = (out_channels + triton.cdiv(pixels, BP), triton.cdiv(in_channels, BC), batch)
    prepare_kernel[grid](
        input, last, weight, packed, pixels, in_channels, out_channels, pitch,
        TAPS=all_taps, BC=BC, BP=BP, num_warps=8,
    )  # fmt: skip
    x_desc = TensorDescriptor(last, [batch, *shape, in_channels], list(last.stride()), [1, 1, BH, BW, BK])
    weight_desc = TensorDescriptor(packed, [all_taps, out_channels, in_channels], list(packed.stride()), [1, BM, BK])
    tiles = triton.cdiv(out_channels, BM) * out_depth * triton.cdiv(out_height, BH) * triton.cdiv(out_width, BW)
    tile_kernel[tiles, batch](
        x_desc, weight_desc, out, *out_shape, in_channels, out_channels, *paddings,
        HEIGHT_TAPS=taps[1], WIDTH_TAPS=taps[2], TAPS=all_taps, BM=BM, BH=BH, BW=BW, BK=BK,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return out


def box(height: int, width: int, pixels: int) -> tuple[int, int]:
    """BH, BW with BH · BW = pixels that cover [height, width] with the fewest boxes; the widest of those stores best."""
    widths = [w for w in (16, 32, 64, 128, 256) if w <= pixels]
    return min(
        ((pixels // w, w) for w in widths), key=lambda b: (triton.cdiv(height, b[0]) * triton.cdiv(width, b[1]), -b[1])
    )
