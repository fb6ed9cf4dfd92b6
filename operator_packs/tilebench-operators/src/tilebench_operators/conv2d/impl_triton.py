"""Two-dimensional convolution in Triton: implicit GEMM, taps outermost, operand tiles through TMA.

Per tap: out[Cout, pixels] += weight_tap [Cout, Cin] @ x[Cin, shifted pixels]. The image's rows are flattened, so a
tile is a run of BN pixels, whatever the width, and a tap shifts it by (row - 1)·W + column - 1. The hardware fills with
zeros what lies outside the image. Only the wrap from one row's end to the next row's start is
wrong: it spoils the last column for right taps and the first column for left taps, and is put right on the
accumulators, once per tap column: right taps go first, and their last column is zeroed; left taps go last, and the first
column is set aside before them.

One tap's weights lie `taps` elements apart, which no tile load can read, so a first launch packs them as
[taps, Cout, Cin]: 288 KiB in fp16. Nothing else is copied. Other kernel sizes, strides, groups and unaligned images (edge
cases only) load by pointers instead.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel
from triton.tools.tensor_descriptor import TensorDescriptor

# TMA starts a box at any element; Triton's interpreter insists on 16 bytes, so there the other kernel stands in.
TMA = not triton.knobs.runtime.interpret


@triton.jit
def rounded_to_tf32(x):
    """fp32 rounded to the 10 mantissa bits of TF32; the tensor core by itself would cut the others off."""
    return ((x.to(tl.uint32, bitcast=True) + 0x1000) & 0xFFFFE000).to(tl.float32, bitcast=True)


@triton.jit
def pack_kernel(weight_ptr, packed_ptr, rows, in_channels, pitch, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    """weight [rows, in_channels, TAPS] -> packed [TAPS, rows, pitch]; one program packs BLOCK channels of one row."""
    row = tl.program_id(0)
    channels = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = channels < in_channels
    for tap in tl.static_range(TAPS):
        weight = tl.load(weight_ptr + (row * in_channels + channels) * TAPS + tap, mask=mask)
        if weight.dtype == tl.float32:
            weight = rounded_to_tf32(weight)
        tl.store(packed_ptr + (tap * rows + row) * pitch + channels, weight, mask=mask)


@triton.jit
def tile_kernel(
    x_desc,
    weight_desc,
    out_desc,
    width,
    in_channels,
    out_channels,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """One program, one [BM channels, BN pixels] tile of out [batch, Cout, H·W]; 3×3 taps, W >= 16.

    Boxes: x [1, BK, BN] of [batch, Cin, H·W], weight [1, BM, BK] of [9, Cout, Cin].
    """
    channel_tiles = tl.cdiv(out_channels, BM)  # fastest, so that neighbours share the tile of x in L2
    row = tl.program_id(0) % channel_tiles * BM
    pixel = tl.program_id(0) // channel_tiles * BN
    batch = tl.program_id(1)
    fp32: tl.constexpr = x_desc.dtype == tl.float32
    columns = (pixel + tl.arange(0, BN)) % width
    # A TF32 tensor core wants the reduction axis contiguous in shared memory, and x has pixels there. An operand in
    # registers may have any order, and only the left one can be there: in fp32 the product is transposed.
    if fp32:
        acc = tl.zeros([BN, BM], tl.float32)
        columns = columns[:, None]
    else:
        acc = tl.zeros([BM, BN], tl.float32)
        columns = columns[None, :]
    chunks = tl.cdiv(in_channels, BK)
    for column in tl.static_range(2, -1, -1):
        if column == 0:
            # Among 16 neighbours at most one is in the first column: a sum picks it, at a sixteenth of the registers.
            first = tl.where(columns == 0, acc, 0.0)
            first = first.reshape(BN // 16, 16, BM) if fp32 else first.reshape(BM, BN // 16, 16)
            first = tl.sum(first, axis=1 if fp32 else 2)
        for step in range(3 * chunks):
            tap_row = step // chunks
            channel = step % chunks * BK
            weight = weight_desc.load([tap_row * 3 + column, row, channel]).reshape(BM, BK)
            shifted = pixel + (tap_row - 1) * width + column - 1
            x = x_desc.load([batch, channel, shifted]).reshape(BK, BN)
            acc = tl.dot(rounded_to_tf32(x.T), weight.T, acc) if fp32 else tl.dot(weight, x, acc)
        if column == 2:
            acc = tl.where(columns == width - 1, 0.0, acc)
    if fp32:
        first = tl.broadcast_to(first[:, None, :], (BN // 16, 16, BM)).reshape(BN, BM)
        acc = tl.where(columns == 0, first, acc).T
    else:
        first = tl.broadcast_to(first[:, :, None], (BM, BN // 16, 16)).reshape(BM, BN)
        acc = tl.where(columns == 0, first, acc)
    out_desc.store([batch, row, pixel], acc.to(out_desc.dtype).reshape(1, BM, BN))


@triton.jit
def pointer_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    height,
    width,
    out_height,
    out_width,
    in_channels,
    out_channels,
    stride,
    padding,
    groups,
    SIZE: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """As `tile_kernel` for one (batch, group) of any convolution, channels counted per group, with masked pointer loads."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    pixels = tl.program_id(1) * BN + tl.arange(0, BN)
    plane = tl.program_id(2).to(tl.int64)  # batch · groups + group
    weight_rows = tl.program_id(2) % groups * out_channels + rows
    out_rows = pixels // out_width
    columns = pixels % out_width
    acc = tl.zeros([BM, BN], tl.float32)
    for tap in range(SIZE * SIZE):
        sources_y = out_rows * stride + tap // SIZE - padding
        sources_x = columns * stride + tap % SIZE - padding
        inside = (sources_y >= 0) & (sources_y < height) & (sources_x >= 0) & (sources_x < width)
        sources = sources_y * width + sources_x
        for start in range(0, in_channels, BK):
            channels = start + tl.arange(0, BK)
            weight = tl.load(
                weight_ptr + (weight_rows[:, None] * in_channels + channels[None, :]) * (SIZE * SIZE) + tap,
                mask=(rows[:, None] < out_channels) & (channels[None, :] < in_channels),
                other=0,
            )
            x = tl.load(
                x_ptr + (plane * in_channels + channels[:, None]) * (height * width) + sources[None, :],
                mask=(channels[:, None] < in_channels) & inside[None, :],
                other=0,
            )
            acc = tl.dot(weight, x, acc)
    out_pixels = out_height * out_width
    tl.store(
        out_ptr + (plane * out_channels + rows[:, None]) * out_pixels + pixels[None, :],
        acc.to(out_ptr.dtype.element_ty),
        mask=(rows[:, None] < out_channels) & (pixels[None, :] < out_pixels),
    )


def run(
    input: torch.Tensor,
    weight: torch.Tensor,
    stride: int,
    padding: int,
    groups: int,
    *,
    BM: int,
    BN: int,
    BK: int,
    num_warps: int,
    num_stages: int,
) -> torch.Tensor:
    """Return out [batch, Cout, H_out, W_out] of input [batch, Cin, H, W], weight [Cout, Cin / groups, size, size]."""
    batch, in_channels, height, width = input.shape
    out_channels, group_channels, size = weight.shape[:3]
    out_extents = [(extent + 2 * padding - size) // stride + 1 for extent in input.shape[2:]]
    out = torch.empty((batch, out_channels, *out_extents), dtype=input.dtype, device=input.device)
    aligned = height * width * input.element_size() % 16 == 0  # for TMA
    if size != 3 or padding != 1 or stride != 1 or groups != 1 or width < 16 or not (aligned and TMA):
        rows = out_channels // groups
        grid = (triton.cdiv(rows, 64), triton.cdiv(out_extents[0] * out_extents[1], 64), batch * groups)
        pointer_kernel[grid](
            input, weight, out, height, width, *out_extents, group_channels, rows, stride, padding, groups,
            SIZE=size, BM=64, BN=64, BK=32, num_warps=4,
        )  # fmt: skip
        return out
    pitch = triton.cdiv(in_channels, 8) * 8
    packed = torch.empty((9, out_channels, pitch), dtype=input.dtype, device=input.device)
    pack_kernel[(out_channels, triton.cdiv(in_channels, 128))](
        weight, packed, out_channels, in_channels, pitch, TAPS=9, BLOCK=128, num_warps=4
    )
    x, y = input.flatten(-2), out.flatten(-2)  # views, [batch, channels, H·W]
    x_desc = TensorDescriptor(x, list(x.shape), list(x.stride()), [1, BK, BN])
    weight_desc = TensorDescriptor(packed, [9, out_channels, in_channels], list(packed.stride()), [1, BM, BK])
    out_desc = TensorDescriptor(y, list(y.shape), list(y.stride()), [1, BM, BN])
    grid = (triton.cdiv(out_channels, BM) * triton.cdiv(height * width, BN), batch)
    tile_kernel[grid](
        x_desc, weight_desc, out_desc, width, in_channels, out_channels,
        BM=BM, BN=BN, BK=BK, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return out


def default(case: Case) -> Config:
    # The largest tile that still gives almost every multiprocessor a program. Three stages of 128×128 take 96 KiB, so
    # that two programs of four warps share a multiprocessor; in fp32 an operand lies in registers too, which four warps
    # haven't enough of. The small tiles wait for memory and want more stages.
    fp32 = case.dtype == "fp32"
    tiles = [(128, 128, 8 if fp32 else 4, 4 if fp32 else 3), (128, 64, 4, 4), (64, 64, 4, 4)]
    tiles += [(32, 64, 4, 5), (16, 64, 4, 6)] if fp32 else [(64, 32, 4, 5), (64, 16, 4, 6)]
    pixels = case["H"] * (case["W"] or case["H"])
    bm, bn, warps, stages = next(
        (tile for tile in tiles if triton.cdiv(case["Cout"], tile[0]) * triton.cdiv(pixels, tile[1]) >= 120), tiles[-1]
    )
    return {"BM": bm, "BN": bn, "BK": 128 // case.dtype_size, "num_warps": warps, "num_stages": stages}


def space(case: Case) -> list[Config]:
    # In fp32 the pixels are the rows of the tensor core's product, in fp16 the channels; 64 rows make one instruction.
    small = [(32, 64, 4), (16, 64, 4)] if case.dtype == "fp32" else [(64, 32, 4), (64, 16, 4)]
    return [
        {"BM": bm, "BN": bn, "BK": bk // case.dtype_size, "num_warps": warps, "num_stages": stages}
        for bm, bn, warps in [
            *small,
            (64, 64, 4),
            (64, 128, 4),
            (128, 64, 4),
            (128, 128, 4),
            (128, 128, 8),
            (128, 256, 8),
        ]
        for bk, depths in ((128, (3, 4, 6)), (256, (2, 3)))
        for stages in depths
        if stages * bk * (bm + bn) <= 212_992
        and (case.dtype != "fp32" or bm * bn <= 2048 * warps)  # an operand in registers, too: more would spill
    ]


KERNEL = Kernel(run=run, default=default, space=space)
