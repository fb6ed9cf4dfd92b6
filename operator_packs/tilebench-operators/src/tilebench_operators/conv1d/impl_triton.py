"""One-dimensional convolution in Triton: a channels-last pass, then an implicit GEMM that shares what two positions read.

As in `tilebench_operators._conv`, a first launch writes x channels-last and packs the weights, and TMA fetches shifted boxes, with
zeros for the padding. L2 would then be the limit: every tap reads all of x again. But neighbouring positions of the result read
the same positions of x but one: with k taps, two read k + 1 instead of 2·k. So a program keeps the sums of even and of odd
positions apart, loads k + 1 boxes of every second position, and multiplies each by the weights of the two taps that meet it.
Even and odd positions of x are two TMA descriptors.

The reduction is short, k · Cin: a program goes through many tiles, and the loads of the next are on their way while one is
stored. Strides, groups and a single position (edge cases only) load by pointers.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel, multiprocessors
from triton.tools.tensor_descriptor import TensorDescriptor

from tilebench_operators._conv import pointer_kernel, prepare_kernel

ROOM = 225_000  # bytes of shared memory for the stages of a program on sm_90


@triton.jit
def load_every_second(even_desc, odd_desc, batch, pair, channel, OFFSET: tl.constexpr):
    """The box [1, BP, BK] of every second position of x, from position 2 · pair + OFFSET on."""
    if OFFSET % 2 == 0:
        return even_desc.load([batch, pair + OFFSET // 2, channel])
    else:
        return odd_desc.load([batch, pair + OFFSET // 2, channel])


@triton.jit
def halves(x):
    """x [M, N] as two tiles [M, N / 2]; threads keep what they hold."""
    return tl.split(x.reshape(x.shape[0], 2, x.shape[1] // 2).permute(0, 2, 1))


@triton.jit
def store_alternating(out_ptr, even, odd, plane, rows, start, out_length, out_channels):
    """even and odd [BM, N] side by side to out from position `start` on."""
    both = tl.join(even, odd).reshape(even.shape[0], even.shape[1] * 2)
    positions = start + tl.arange(0, even.shape[1] * 2)[None, :]
    mask = (rows < out_channels) & (positions < out_length)
    tl.store(out_ptr + plane + positions, both.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def tile_kernel(
    even_desc,
    odd_desc,
    weight_desc,
    out_ptr,
    out_length,
    in_channels,
    out_channels,
    tiles,
    PADDING: tl.constexpr,
    TAPS: tl.constexpr,
    BM: tl.constexpr,
    BP: tl.constexpr,
    BK: tl.constexpr,
):
    """A program makes every programs-th tile of BM channels and BP pairs of positions of out [batch, Cout, L_out].

    Boxes: even and odd positions of x [1, BP, BK] of [batch, L / 2, Cin], weight [1, BM, BK] of [TAPS, Cout, Cin].
    """
    channel_tiles = tl.cdiv(out_channels, BM)  # the fastest, so that neighbours read the same tile of x in L2
    length_tiles = tl.cdiv(out_length, 2 * BP)
    chunks = tl.cdiv(in_channels, BK)
    even = tl.zeros([BM, BP], tl.float32)
    odd = tl.zeros([BM, BP], tl.float32)
    # One loop over the steps of all tiles: loads are pipelined across tiles.
    for step in range(tl.cdiv(tiles - tl.program_id(0), tl.num_programs(0)) * chunks):
        tile = tl.program_id(0) + step // chunks * tl.num_programs(0)
        channel = step % chunks * BK
        row = tile % channel_tiles * BM
        pair = tile // channel_tiles % length_tiles * BP
        batch = tile // channel_tiles // length_tiles
        if step % chunks == 0:  # the first products of a tile don't add to what is there
            even = tl.zeros([BM, BP], tl.float32)
            odd = tl.zeros([BM, BP], tl.float32)
        x = load_every_second(even_desc, odd_desc, batch, pair, channel, -PADDING).reshape(BP, BK)
        for tap in tl.static_range(TAPS):
            weight = weight_desc.load([tap, row, channel]).reshape(BM, BK)
            even = tl.dot(weight, x.T, even)
            # What the odd positions' tap meets is what the even positions' next tap meets.
            x = load_every_second(even_desc, odd_desc, batch, pair, channel, tap + 1 - PADDING).reshape(BP, BK)
            odd = tl.dot(weight, x.T, odd)
        if step % chunks == chunks - 1:
            rows = row + tl.arange(0, BM)[:, None]
            plane = (batch * out_channels + rows).to(tl.int64) * out_length
            # In two parts, which pass through half as much shared memory.
            even_left, even_right = halves(even)
            odd_left, odd_right = halves(odd)
            store_alternating(out_ptr, even_left, odd_left, plane, rows, pair * 2, out_length, out_channels)
            store_alternating(out_ptr, even_right, odd_right, plane, rows, pair * 2 + BP, out_length, out_channels)


def run(
    input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int, *,
    BM: int, BP: int, BK: int, num_warps: int, num_stages: int,
) -> torch.Tensor:  # fmt: skip
    """Return out [batch, Cout, L_out] of input [batch, Cin, L] and weight [Cout, Cin / groups, taps]."""
    batch, in_channels, length = input.shape
    out_channels, group_channels, taps = weight.shape
    out_length = (length + 2 * padding - taps) // stride + 1
    out = torch.empty((batch, out_channels, out_length), dtype=input.dtype, device=input.device)
    if stride != 1 or groups != 1 or length == 1:
        rows = out_channels // groups
        grid = (triton.cdiv(rows, 64), triton.cdiv(out_length, 64), batch * groups)
        pointer_kernel[grid](
            input, weight, out, 1, 1, length, 1, 1, out_length, group_channels, rows, 0, 0, padding, 1, 1, stride, groups,
            HEIGHT_TAPS=1, WIDTH_TAPS=taps, TAPS=taps, BM=64, BN=64, BK=32, num_warps=4,
        )  # fmt: skip
        return out
    align = 16 // input.element_size()
    pitch = triton.cdiv(in_channels, align) * align  # TMA wants strides of whole 16 bytes
    last = torch.empty((batch, length, pitch), dtype=input.dtype, device=input.device)
    packed = torch.empty((taps, out_channels, pitch), dtype=input.dtype, device=input.device)
    BC, positions = min(128, max(16, triton.next_power_of_2(in_channels))), 128 // input.element_size()
    grid = (out_channels + triton.cdiv(length, positions), triton.cdiv(in_channels, BC), batch)
    prepare_kernel[grid](
        input, last, weight, packed, length, in_channels, out_channels, pitch,
        TAPS=taps, BC=BC, BP=positions, num_warps=8,
    )  # fmt: skip
    even_desc, odd_desc = (
        TensorDescriptor(x, [*x.shape[:2], in_channels], list(x.stride()), [1, BP, BK])
        for x in (last[:, 0::2], last[:, 1::2])
    )
    weight_desc = TensorDescriptor(packed, [taps, out_channels, in_channels], list(packed.stride()), [1, BM, BK])
    tiles = batch * triton.cdiv(out_channels, BM) * triton.cdiv(out_length, 2 * BP)
    # Many taps bring many boxes per step. The results pass through shared memory, a quarter of them at a time and kind.
    room = ROOM - BM * BP * input.element_size()
    stage_bytes = (taps * BM + (taps + 1) * BP) * BK * input.element_size()
    tile_kernel[(min(tiles, multiprocessors(input.device)),)](
        even_desc, odd_desc, weight_desc, out, out_length, in_channels, out_channels, tiles,
        PADDING=padding, TAPS=taps, BM=BM, BP=BP, BK=BK,
        num_warps=num_warps, num_stages=max(1, min(num_stages, room // stage_bytes)),
    )  # fmt: skip
    return out


def _config(case: Case, bm: int, bp: int, bk: int, warps: int, stages: int) -> Config:
    return {"BM": bm, "BP": bp, "BK": bk // case.dtype_size, "num_warps": warps, "num_stages": stages}


def default(case: Case) -> Config:
    # 64 bytes of reduction per step: more stages of large tiles fit into shared memory.
    if case["L"] >= 132 * 128:
        return _config(case, 128, 128, 64, 8, 3)
    return _config(case, 64, 32, 128, 4, 3)


def space(case: Case) -> list[Config]:
    tiles = [(64, 32, 4), (64, 64, 4), (64, 128, 4), (128, 64, 4), (128, 64, 8), (128, 128, 8)]
    return [
        _config(case, bm, bp, bk, warps, stages)
        for bm, bp, warps in tiles
        for bk in (64, 128)
        for stages in (2, 3, 4)
        if stages * bk * (3 * bm + 4 * bp) + bm * bp * case.dtype_size <= ROOM
    ]


KERNEL = Kernel(run=run, default=default, space=space)
