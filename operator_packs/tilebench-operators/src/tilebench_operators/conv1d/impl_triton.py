"""One-dimensional convolution in Triton: an implicit GEMM that turns its input around on the way to shared memory.

Per tap: out[Cout, positions] += weight_tap [Cout, Cin] @ x[Cin, shifted positions]. The grid is bound by memory (192 FLOP per byte in
fp16), so that a launch which rewrites x first would double the traffic; and a tile shifted by one position can't be loaded by
16 bytes. Instead a tile of x is split into planes: plane r holds the positions 4·q + r. Tap t of the results 4·q + r reads plane
r + t - 1: one of the four planes, or of the two besides them (r + t - 1 = -1, 4), the only ones to be loaded by elements.
Each plane is written to shared memory once, in the order that the tensor core wants, and serves up to three taps.

The pointer loads are asynchronous copies, and one loop goes over the steps of all of a program's tiles, so that the first loads
of a tile are under way while the tile before it is multiplied and stored.
A first, tiny launch packs the weights as [3, Cout, Cin] for TMA. Other taps, odd extents, strides and groups (edge cases
only) take `_conv`.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel, multiprocessors
from triton.tools.tensor_descriptor import TensorDescriptor

from tilebench_operators._conv import convolution, pack_row, to_operand

TAPS = tl.constexpr(3)
PLANES = tl.constexpr(4)


@triton.jit
def pack_kernel(weight_ptr, packed_ptr, in_channels, out_channels, pitch, TILE: tl.constexpr):
    """packed [TAPS, Cout, pitch] of weight [Cout, Cin, TAPS]; a program packs a row's TILE channels."""
    channels = tl.program_id(1) * TILE + tl.arange(0, TILE)
    pack_row(weight_ptr, packed_ptr, tl.program_id(0), channels, in_channels, out_channels, pitch, TAPS)


@triton.jit
def last_half(words, dtype: tl.constexpr):
    """The second of the two values of `dtype` in each 32-bit word, or the only one."""
    if dtype.primitive_bitwidth == 16:
        return (words >> 16).to(tl.int16).to(dtype, bitcast=True)
    else:
        return words.to(dtype, bitcast=True)


@triton.jit
def first_half(words, dtype: tl.constexpr):
    """The first of the two values of `dtype` in each 32-bit word, or the only one."""
    if dtype.primitive_bitwidth == 16:
        return words.to(tl.int16).to(dtype, bitcast=True)
    else:
        return words.to(dtype, bitcast=True)


@triton.jit
def load_planes(
    row_ptr, start, channels, length, BQ: tl.constexpr, BK: tl.constexpr, SPAN: tl.constexpr, WHOLE: tl.constexpr
):
    """The planes -1 to 4, each [BK, BQ], of `channels` rows of x [.., L] from position `start` on.

    Asynchronous copies move at least 4 bytes: the neighbours of runs of SPAN positions, 16 bytes, come in words of 4.
    """
    dtype: tl.constexpr = row_ptr.dtype.element_ty
    PER_WORD: tl.constexpr = 32 // dtype.primitive_bitwidth
    word_ptr = row_ptr.to(tl.pointer_type(tl.int32))
    positions = start + tl.arange(0, PLANES * BQ)[None, :]
    mask = positions < length
    # Transposed, or Triton would give neighbouring channels, not positions, to neighbouring threads.
    firsts = start + tl.arange(0, PLANES * BQ // SPAN)[:, None] * SPAN
    mask_left, mask_right = (firsts > 0) & (firsts < length), firsts + SPAN < length
    if not WHOLE:
        mask &= tl.arange(0, BK)[:, None] < channels
        mask_left &= tl.arange(0, BK)[None, :] < channels
        mask_right &= tl.arange(0, BK)[None, :] < channels
    x = tl.load(row_ptr + (tl.arange(0, BK)[:, None] * length + positions), mask=mask, other=0)
    words = word_ptr + (tl.arange(0, BK)[None, :] * (length // PER_WORD) + firsts // PER_WORD)
    left = last_half(tl.load(words - 1, mask=mask_left, other=0), dtype)
    right = first_half(tl.load(words + SPAN // PER_WORD, mask=mask_right, other=0), dtype)
    even, odd = to_operand(x).reshape(BK, BQ, 2, 2).split()
    p0, p2 = even.split()
    p1, p3 = odd.split()
    before, after = to_operand(left).trans(), to_operand(right).trans()
    if SPAN == 2 * PLANES:  # a thread has two positions of each plane: every other neighbour is its own
        before = tl.join(before, p3.reshape(BK, BQ // 2, 2).split()[0]).reshape(BK, BQ)
        after = tl.join(p0.reshape(BK, BQ // 2, 2).split()[1], after).reshape(BK, BQ)
    return before, p0, p1, p2, p3, after


@triton.jit
def tile_kernel(
    x_ptr,
    weight_desc,
    out_ptr,
    length,
    in_channels,
    out_channels,
    chunks,
    channel_tiles,
    tiles,
    all_tiles,
    BM: tl.constexpr,
    BQ: tl.constexpr,
    BK: tl.constexpr,
    SPAN: tl.constexpr,
    WHOLE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Tiles of BM channels and 4·BQ positions of out [batch, Cout, L] for x [batch, Cin, L].

    A program takes every num_programs-th of all_tiles = batch · tiles · channel_tiles, in steps of BK input channels.
    SPAN positions are 16 bytes. WHOLE: Cin is a multiple of BK. Box: weight [1, BM, BK] of [TAPS, Cout, Cin].
    """
    programs = tl.num_programs(0)
    acc0 = tl.zeros([BM, BQ], tl.float32)
    acc1, acc2, acc3 = acc0, acc0, acc0
    # One loop over the steps of all tiles: its loads run ahead across the ends of tiles.
    for step in tl.range(tl.cdiv(all_tiles - tl.program_id(0), programs) * chunks, num_stages=STAGES):
        tile = tl.program_id(0) + step // chunks * programs
        channel = step % chunks * BK
        row = tile % channel_tiles * BM
        start = tile // channel_tiles % tiles * (PLANES * BQ)
        batch = (tile // channel_tiles // tiles).to(tl.int64)
        row_ptr = x_ptr + (batch * in_channels + channel) * length
        before, p0, p1, p2, p3, after = load_planes(row_ptr, start, in_channels - channel, length, BQ, BK, SPAN, WHOLE)
        w0 = weight_desc.load([0, row, channel]).reshape(BM, BK)
        w1 = weight_desc.load([1, row, channel]).reshape(BM, BK)
        w2 = weight_desc.load([2, row, channel]).reshape(BM, BK)
        acc0 = tl.dot(w0, before, acc0)
        acc1 = tl.dot(w0, p0, acc1)
        acc2 = tl.dot(w0, p1, acc2)
        acc3 = tl.dot(w0, p2, acc3)
        acc0 = tl.dot(w1, p0, acc0)
        acc1 = tl.dot(w1, p1, acc1)
        acc2 = tl.dot(w1, p2, acc2)
        acc3 = tl.dot(w1, p3, acc3)
        acc0 = tl.dot(w2, p1, acc0)
        acc1 = tl.dot(w2, p2, acc1)
        acc2 = tl.dot(w2, p3, acc2)
        acc3 = tl.dot(w2, after, acc3)
        if channel + BK >= in_channels:
            rows = row + tl.arange(0, BM)[:, None]
            positions = start + tl.arange(0, PLANES * BQ)[None, :]
            total = tl.join(tl.join(acc0, acc2), tl.join(acc1, acc3)).reshape(BM, PLANES * BQ)
            targets = (batch * out_channels + row) * length + (tl.arange(0, BM)[:, None] * length + positions)
            tl.store(
                out_ptr + targets, total.to(out_ptr.dtype.element_ty), mask=(rows < out_channels) & (positions < length)
            )
            acc0 = tl.zeros([BM, BQ], tl.float32)
            acc1, acc2, acc3 = acc0, acc0, acc0


def run(
    input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int, *,
    BM: int, BQ: int, BK: int, num_warps: int, num_stages: int, PER_SM: int,
) -> torch.Tensor:  # fmt: skip
    """Return out [batch, Cout, L_out] of input [batch, Cin, L] and weight [Cout, Cin / groups, taps]."""
    align = 16 // input.element_size()
    if (weight.shape[2], stride, padding, groups) != (3, 1, 1, 1) or input.shape[2] % align:
        return convolution(
            input, weight, stride, padding, groups, BM=64, BH=1, BW=64, BK=128 // input.element_size(), num_warps=4,
            num_stages=3,
        )  # fmt: skip
    batch, in_channels, length = input.shape
    out_channels = weight.shape[0]
    out = torch.empty((batch, out_channels, length), dtype=input.dtype, device=input.device)
    pitch = triton.cdiv(in_channels, align) * align  # TMA wants strides of whole 16 bytes
    packed = torch.empty((3, out_channels, pitch), dtype=input.dtype, device=input.device)
    pack_kernel[out_channels, triton.cdiv(in_channels, 128)](
        weight, packed, in_channels, out_channels, pitch, TILE=128, num_warps=4
    )
    weight_desc = TensorDescriptor(packed, [3, out_channels, in_channels], list(packed.stride()), [1, BM, BK])
    chunks, channel_tiles = triton.cdiv(in_channels, BK), triton.cdiv(out_channels, BM)
    tiles = triton.cdiv(length, 4 * BQ)
    all_tiles = batch * tiles * channel_tiles
    tile_kernel[(min(all_tiles, PER_SM * multiprocessors(input.device)),)](
        input, weight_desc, out, length, in_channels, out_channels, chunks, channel_tiles, tiles, all_tiles,
        BM=BM, BQ=BQ, BK=BK, SPAN=align, WHOLE=in_channels % BK == 0, STAGES=num_stages, num_warps=num_warps,
    )  # fmt: skip
    return out


def _config(BM: int, BQ: int, depth: int, warps: int, stages: int, per_sm: int) -> Config:
    return {"BM": BM, "BQ": BQ, "BK": depth, "num_warps": warps, "num_stages": stages, "PER_SM": per_sm}


def default(case: Case) -> Config:
    # In fp16 two programs fit a multiprocessor, and one splits its tile while the other multiplies. In fp32 the planes are
    # turned on their way to shared memory, with bank conflicts, which two programs would meet twice.
    if case.dtype == "fp16":
        return _config(64, 64, 64 // case.dtype_size, 4, 3, 2)
    return _config(128, 64, 128 // case.dtype_size, 8, 2, 1)


def space(case: Case) -> list[Config]:
    # BM, BQ, bytes of reduction per step, warps, stages, programs on a multiprocessor.
    tiles = [
        (128, 64, 128, 8, 2, 1), (128, 64, 64, 8, 2, 1), (128, 64, 64, 8, 3, 1), (64, 64, 64, 4, 2, 2),
        (128, 32, 64, 4, 2, 2), (128, 32, 64, 4, 3, 2),
    ]  # fmt: skip
    if case.dtype == "fp16":
        tiles += [(64, 64, 64, 4, 3, 2)]
    return [_config(bm, bq, depth // case.dtype_size, *rest) for bm, bq, depth, *rest in tiles]


KERNEL = Kernel(run=run, default=default, space=space)
