"""One-dimensional convolution in Triton: implicit GEMM, taps outermost, operand tiles through TMA.

Per tap t: out[Cout, L] += weight_t [Cout, Cin] @ x[Cin, l + t - padding]. A shifted tile is the same TMA box at a
shifted coordinate, and the hardware fills what lies outside the row with zeros: that is the padding, for nothing.
One tap's weights lie `taps` elements apart, which no tile load can read, so a first launch packs them as
[taps, Cout, Cin]: 96 KiB in fp16, against hundreds of megabytes of activations. Nothing else is copied.
Strided, grouped or unaligned convolutions (edge cases only) load by pointers instead.
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
    in_channels,
    out_channels,
    padding,
    TAPS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """One program, one [BM channels, BN positions] tile of out [batch, Cout, L_out].

    Boxes: x [1, BK, BN] of [batch, Cin, L], weight [1, BM, BK] of [TAPS, Cout, Cin].
    """
    channel_tiles = tl.cdiv(out_channels, BM)  # fastest, so that neighbours share the tile of x in L2
    row = tl.program_id(0) % channel_tiles * BM
    position = tl.program_id(0) // channel_tiles * BN
    batch = tl.program_id(1)
    fp32: tl.constexpr = x_desc.dtype == tl.float32
    acc = tl.zeros([BN, BM] if fp32 else [BM, BN], tl.float32)
    chunks = tl.cdiv(in_channels, BK)
    for step in range(TAPS * chunks):
        tap = step // chunks
        channel = step % chunks * BK
        weight = weight_desc.load([tap, row, channel]).reshape(BM, BK)
        x = x_desc.load([batch, channel, position + tap - padding]).reshape(BK, BN)
        # A TF32 tensor core wants the reduction axis contiguous in shared memory, and x has positions there. An operand
        # in registers may have any order, and only the left one can be there: in fp32 the product is transposed.
        acc = tl.dot(rounded_to_tf32(x.T), weight.T, acc) if fp32 else tl.dot(weight, x, acc)
    if fp32:
        acc = acc.T
    out_desc.store([batch, row, position], acc.to(out_desc.dtype).reshape(1, BM, BN))


@triton.jit
def pointer_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    length,
    out_length,
    in_channels,
    out_channels,
    stride,
    padding,
    groups,
    TAPS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """As `tile_kernel` for one (batch, group) of any stride, channels counted per group, with masked pointer loads."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    positions = tl.program_id(1) * BN + tl.arange(0, BN)
    plane = tl.program_id(2).to(tl.int64)  # batch · groups + group
    weight_rows = tl.program_id(2) % groups * out_channels + rows
    acc = tl.zeros([BM, BN], tl.float32)
    for tap in range(TAPS):
        source = positions * stride + tap - padding
        inside = (source >= 0) & (source < length)
        for start in range(0, in_channels, BK):
            channels = start + tl.arange(0, BK)
            weight = tl.load(
                weight_ptr + (weight_rows[:, None] * in_channels + channels[None, :]) * TAPS + tap,
                mask=(rows[:, None] < out_channels) & (channels[None, :] < in_channels),
                other=0,
            )
            x = tl.load(
                x_ptr + (plane * in_channels + channels[:, None]) * length + source[None, :],
                mask=(channels[:, None] < in_channels) & inside[None, :],
                other=0,
            )
            acc = tl.dot(weight, x, acc)
    tl.store(
        out_ptr + (plane * out_channels + rows[:, None]) * out_length + positions[None, :],
        acc.to(out_ptr.dtype.element_ty),
        mask=(rows[:, None] < out_channels) & (positions[None, :] < out_length),
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
    """Return out [batch, Cout, L_out] of input [batch, Cin, L] and weight [Cout, Cin / groups, taps]."""
    batch, in_channels, length = input.shape
    out_channels, group_channels, taps = weight.shape
    out_length = (length + 2 * padding - taps) // stride + 1
    out = torch.empty((batch, out_channels, out_length), dtype=input.dtype, device=input.device)
    aligned = all(extent * input.element_size() % 16 == 0 for extent in (length, out_length))  # rows, for TMA
    if stride != 1 or groups != 1 or not (aligned and TMA):
        rows = out_channels // groups
        grid = (triton.cdiv(rows, 64), triton.cdiv(out_length, 64), batch * groups)
        pointer_kernel[grid](
            input, weight, out, length, out_length, group_channels, rows, stride, padding, groups,
            TAPS=taps, BM=64, BN=64, BK=32, num_warps=4,
        )  # fmt: skip
        return out
    pitch = triton.cdiv(in_channels, 8) * 8
    packed = torch.empty((taps, out_channels, pitch), dtype=input.dtype, device=input.device)
    pack_kernel[(out_channels, triton.cdiv(in_channels, 128))](
        weight, packed, out_channels, in_channels, pitch, TAPS=taps, BLOCK=128, num_warps=4
    )
    x_desc = TensorDescriptor(input, list(input.shape), list(input.stride()), [1, BK, BN])
    weight_desc = TensorDescriptor(packed, [taps, out_channels, in_channels], list(packed.stride()), [1, BM, BK])
    out_desc = TensorDescriptor(out, list(out.shape), list(out.stride()), [1, BM, BN])
    grid = (triton.cdiv(out_channels, BM) * triton.cdiv(out_length, BN), batch)
    tile_kernel[grid](
        x_desc, weight_desc, out_desc, in_channels, out_channels, padding,
        TAPS=taps, BM=BM, BN=BN, BK=BK, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return out


def default(case: Case) -> Config:
    # 128 bytes of reduction per step; three stages take 96 KiB, so two programs share a multiprocessor and one's
    # store overlaps the other's products: the reduction has only taps · Cin / BK = 6 steps in fp16.
    return {"BM": 128, "BN": 128, "BK": 128 // case.dtype_size, "num_warps": 8, "num_stages": 3}


def space(case: Case) -> list[Config]:
    tiles = [(64, 128), (64, 256), (128, 64), (128, 128), (128, 256)]
    return [
        {"BM": bm, "BN": bn, "BK": bk // case.dtype_size, "num_warps": warps, "num_stages": stages}
        for bm, bn in tiles
        for bk in (64, 128)
        for warps in (4, 8)
        for stages in (3, 4)
        if (bm, bn, warps) != (128, 256, 4)  # 256 accumulators a thread: more than its registers
        and stages * bk * (bm + bn) <= 212_992
        and (case.dtype != "fp32" or bm * bn <= 2048 * warps)  # an operand in registers, too: more would spill
    ]


KERNEL = Kernel(run=run, default=default, space=space)
