"""Three-dimensional convolution in Triton: an implicit GEMM in which two rows of results share what they read.

As in `_conv`, a first launch writes x channels-last and packs the weights, and TMA fetches shifted boxes. A tile of 64 or 128
channels by as many pixels as registers hold takes its operands faster than L2 delivers them. Of the taps of a column, which
differ in the row only, neighbouring rows of results read the same rows of x but one: with k taps, two rows read k + 1 rows
instead of 2·k. So a program keeps the sums of even and of odd rows apart, loads the k + 1 boxes, and multiplies each by the
weights of the two taps that meet it. Even and odd rows of x are two TMA descriptors, for boxes of every second row.

Strides, groups and single rows (edge cases only) load by pointers.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tilebench_operators._conv import pointer_kernel, prepare_kernel

ROOM = 225_000  # bytes of shared memory for the stages of a program on sm_90


@triton.jit
def load_rows(even_desc, odd_desc, batch, z, pair, x, channel, OFFSET: tl.constexpr):
    """The box [1, 1, BR, BW, BK] of every second row of x, from row 2 · pair + OFFSET on."""
    if OFFSET % 2 == 0:
        return even_desc.load([batch, z, pair + OFFSET // 2, x, channel])
    else:
        return odd_desc.load([batch, z, pair + OFFSET // 2, x, channel])


@triton.jit
def tile_kernel(
    even_desc,
    odd_desc,
    weight_desc,
    out_ptr,
    out_depth,
    out_height,
    out_width,
    in_channels,
    out_channels,
    PADDING: tl.constexpr,
    HEIGHT_TAPS: tl.constexpr,
    WIDTH_TAPS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BM: tl.constexpr,
    BR: tl.constexpr,
    BW: tl.constexpr,
    BK: tl.constexpr,
):
    """One program, one tile of BM channels, 2 · BR rows and BW columns of one plane of out [batch, Cout, D, H, W].

    Boxes: even and odd rows of x [1, 1, BR, BW, BK] of [batch, D, H / 2, W, Cin], weight [1, BM, BK] of [taps, Cout, Cin].
    """
    # Channel tiles are the fastest, then come planes, so that neighbours in time read the same tiles of x in L2.
    channel_tiles = tl.cdiv(out_channels, BM)
    width_tiles = tl.cdiv(out_width, BW)
    row = tl.program_id(0) % channel_tiles * BM
    z = tl.program_id(0) // channel_tiles % out_depth
    tile = tl.program_id(0) // channel_tiles // out_depth
    x = tile % width_tiles * BW
    pair = tile // width_tiles * BR  # of rows
    batch = tl.program_id(1)
    chunks = tl.cdiv(in_channels, BK)
    even = tl.zeros([BM, BR * BW], tl.float32)
    odd = tl.zeros([BM, BR * BW], tl.float32)
    for step in range(COLUMNS * chunks):
        column = step // chunks
        channel = step % chunks * BK
        source_z = z + column // WIDTH_TAPS - PADDING
        source_x = x + column % WIDTH_TAPS - PADDING
        tap = column // WIDTH_TAPS * (HEIGHT_TAPS * WIDTH_TAPS) + column % WIDTH_TAPS
        pixels = load_rows(even_desc, odd_desc, batch, source_z, pair, source_x, channel, -PADDING)
        for shift in tl.static_range(HEIGHT_TAPS):
            weight = weight_desc.load([tap + shift * WIDTH_TAPS, row, channel]).reshape(BM, BK)
            even = tl.dot(weight, pixels.reshape(BR * BW, BK).T, even)
            # What the odd rows' tap meets is what the even rows' next tap meets.
            pixels = load_rows(even_desc, odd_desc, batch, source_z, pair, source_x, channel, shift + 1 - PADDING)
            odd = tl.dot(weight, pixels.reshape(BR * BW, BK).T, odd)
    rows = row + tl.arange(0, BM)[:, None]
    plane = ((batch * out_channels + rows).to(tl.int64) * out_depth + z) * (out_height * out_width)
    xs = x + tl.arange(0, BR * BW)[None, :] % BW
    ys = (pair + tl.arange(0, BR * BW)[None, :] // BW) * 2
    targets = plane + (ys * out_width + xs)
    mask = (rows < out_channels) & (xs < out_width)
    tl.store(out_ptr + targets, even.to(out_ptr.dtype.element_ty), mask=mask & (ys < out_height))
    odd_mask = mask & (ys + 1 < out_height)
    tl.store(out_ptr + targets + out_width, odd.to(out_ptr.dtype.element_ty), mask=odd_mask)


def convolution(
    input: torch.Tensor,
    weight: torch.Tensor,
    stride: int,
    padding: int,
    groups: int,
    *,
    BM: int,
    BR: int,
    BW: int,
    BK: int,
    num_warps: int,
    num_stages: int,
) -> torch.Tensor:
    """Return out [batch, Cout, D, H, W] of input [batch, Cin, D, H, W] and weight [Cout, Cin / groups, KD, KH, KW]."""
    batch, in_channels, *extents = input.shape
    out_channels, group_channels, *taps = weight.shape
    out_extents = [(extent + 2 * padding - k) // stride + 1 for extent, k in zip(extents, taps, strict=True)]
    out = torch.empty((batch, out_channels, *out_extents), dtype=input.dtype, device=input.device)
    all_taps = taps[0] * taps[1] * taps[2]
    out_depth, out_height, out_width = out_extents
    if stride != 1 or groups != 1 or extents[1] == 1:
        rows = out_channels // groups
        grid = (triton.cdiv(rows, 64), triton.cdiv(out_depth * out_height * out_width, 64), batch * groups)
        pointer_kernel[grid](
            input, weight, out, *extents, *out_extents, group_channels, rows,
            padding, padding, padding, stride, stride, stride, groups,
            HEIGHT_TAPS=taps[1], WIDTH_TAPS=taps[2], TAPS=all_taps, BM=64, BN=64, BK=32, num_warps=4,
        )  # fmt: skip
        return out
    align = 16 // input.element_size()
    pitch = triton.cdiv(in_channels, align) * align  # TMA wants strides of whole 16 bytes
    pixels = extents[0] * extents[1] * extents[2]
    last = torch.empty((batch, *extents, pitch), dtype=input.dtype, device=input.device)
    packed = torch.empty((all_taps, out_channels, pitch), dtype=input.dtype, device=input.device)
    BC, BP = min(128, max(16, triton.next_power_of_2(in_channels))), 128 // input.element_size()
    grid = (out_channels + triton.cdiv(pixels, BP), triton.cdiv(in_channels, BC), batch)
    prepare_kernel[grid](
        input, last, weight, packed, pixels, in_channels, out_channels, pitch,
        TAPS=all_taps, BC=BC, BP=BP, num_warps=8,
    )  # fmt: skip
    even_desc, odd_desc = (
        TensorDescriptor(rows, [*rows.shape[:4], in_channels], list(rows.stride()), [1, 1, BR, BW, BK])
        for rows in (last[:, :, 0::2], last[:, :, 1::2])
    )
    weight_desc = TensorDescriptor(packed, [all_taps, out_channels, in_channels], list(packed.stride()), [1, BM, BK])
    row_tiles = triton.cdiv(out_height, 2 * BR)
    tiles = triton.cdiv(out_channels, BM) * out_depth * row_tiles * triton.cdiv(out_width, BW)
    # Tall windows bring more boxes per step.
    stage_bytes = (taps[1] * BM + (taps[1] + 1) * BR * BW) * BK * input.element_size()
    tile_kernel[tiles, batch](
        even_desc, odd_desc, weight_desc, out, *out_extents, in_channels, out_channels,
        PADDING=padding, HEIGHT_TAPS=taps[1], WIDTH_TAPS=taps[2], COLUMNS=taps[0] * taps[2],
        BM=BM, BR=BR, BW=BW, BK=BK, num_warps=num_warps, num_stages=max(1, min(num_stages, ROOM // stage_bytes)),
    )  # fmt: skip
    return out
