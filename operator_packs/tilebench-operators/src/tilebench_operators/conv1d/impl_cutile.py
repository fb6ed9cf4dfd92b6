"""One-dimensional convolution in cuTile: implicit GEMM, taps outermost, on channels-last copies of stretches of the input.

Per tap: out[Cout, positions] += weight_tap [Cout, Cin] @ x[positions, Cin]ᵀ, x shifted. cuTile hands a tile to TMA only if its start
along the innermost axis is a multiple of the tile, which shifted positions are not. Therefore a launch copies the input
with its channels innermost: a shifted tile is then a tile like any other, and both operands lie in the order that
Hopper's tensor cores want, for TF32 too.

A copy of all of the input would double the traffic, and memory is the bound. So the launches take turns, a stretch of
positions each: the copy stays in the L2 cache, and the next stretch's copy overwrites it there.
One tap's weights lie `taps` elements apart; they are packed as [taps, Cout, Cin].
Strided or grouped convolutions (edge cases only) gather their elements instead.
"""

import functools

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

ZERO = ct.PaddingMode.ZERO
SIDE = 64  # positions and channels of a tile that is copied


def rounded(x):
    """fp32 rounded to TF32, fp16 as it is. The tensor core by itself would cut off what TF32 has no bits for."""
    return x.astype(ct.tfloat32).astype(ct.float32) if x.dtype == ct.float32 else x


def operand(x):
    """What `ct.mma` multiplies on the tensor cores: fp32 as TF32."""
    return x.astype(ct.tfloat32) if x.dtype == ct.float32 else x


@ct.kernel
def weight_kernel(weight, packed, TILE: ct.Constant[int]):
    """packed [taps, Cout, pitch] of weight [taps, Cout, Cin], a view with the taps nearest in memory."""
    index = (ct.bid(0), ct.bid(1), ct.bid(2))
    ct.store(packed, index, rounded(ct.load(weight, index, (1, TILE, TILE), padding_mode=ZERO)))


@ct.kernel
def pack_kernel(x, packed, first, TILE: ct.Constant[int]):
    """packed [batch, positions, pitch], channels last, of x [batch, Cin, L] from tile `first` on, zeros outside of x."""
    tile, channel, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    if first + tile >= 0:
        t = ct.load(x, (batch, channel, first + tile), (1, TILE, TILE), padding_mode=ZERO)
        ct.store(packed, (batch, tile, channel), rounded(t).permute((0, 2, 1)))
    else:
        ct.store(packed, (batch, tile, channel), ct.zeros((1, TILE, TILE), packed.dtype))


@ct.kernel
def tile_kernel(
    x, weight, out, length, shift, first, TAPS: ct.Constant[int], CHUNKS: ct.Constant[int],
    BM: ct.Constant[int], BN: ct.Constant[int], BK: ct.Constant[int],
):  # fmt: skip
    """One block, one [BM channels, BN positions] tile of out [batch, Cout, L_out], counted from tile `first` on.

    x [batch·length, pitch], a stretch whose position `shift` meets the first tap of the first result, weight [TAPS·Cout,
    pitch]: with two axes only, TF32 tiles reach the tensor core as they are. What a tile reads of the next batch entry or tap
    goes into results that are not stored.
    CHUNKS = ⌈pitch / BK⌉ is a constant: only loops of constant length are pipelined.
    """
    out_channels = out.shape[1]
    channel_tiles = ct.cdiv(out_channels, BM)  # fastest, so that neighbours share the tile of x in the L2 cache
    row, tile, batch = ct.bid(0) % channel_tiles, ct.bid(0) // channel_tiles, ct.bid(1)
    windows = x.tiled_view((BN, BK), padding_mode=ZERO, traversal_steps=(1, BK))
    weights = weight.tiled_view((BM, BK), padding_mode=ZERO, traversal_steps=(1, BK))
    acc = ct.zeros((BM, BN), ct.float32)
    for step in range(TAPS * CHUNKS):
        tap, chunk = step // CHUNKS, step % CHUNKS
        w = weights.load((tap * out_channels + row * BM, chunk))
        t = windows.load((batch * length + shift + tile * BN + tap, chunk))
        acc = ct.mma(operand(w), ct.transpose(operand(t)), acc)
    ct.store(out, (batch, row, first + tile), acc.astype(out.dtype).reshape((1, BM, BN)))


@ct.kernel
def gather_kernel(
    x, weight, out, stride, padding, groups,
    SIZE: ct.Constant[int], BM: ct.Constant[int], BN: ct.Constant[int], BK: ct.Constant[int],
):  # fmt: skip
    """Any convolution, element by element; a [BM, BN] tile of one (batch, group), channels counted per group.

    x [batch·groups, Cin/groups, L], weight [Cout, Cin/groups, taps], out [batch·groups, Cout/groups, L_out].
    """
    plane = ct.bid(2)
    rows = ct.bid(0) * BM + ct.arange(BM, dtype=ct.int32)[:, None]
    pixels = ct.bid(1) * BN + ct.arange(BN, dtype=ct.int32)[None, :]
    weight_rows = plane % groups * out.shape[1] + rows
    acc = ct.zeros((BM, BN), ct.float32)
    for tap in range(SIZE):
        source = pixels * stride + tap - padding
        inside = (source >= 0) & (source < x.shape[2])
        for chunk in range(ct.cdiv(x.shape[1], BK)):
            k = chunk * BK + ct.arange(BK, dtype=ct.int32)
            w_held = (rows < out.shape[1]) & (k[None, :] < x.shape[1])
            w = ct.gather(weight, (weight_rows, k[None, :], tap), mask=w_held, padding_value=0, check_bounds=False)
            t_held = (k[:, None] < x.shape[1]) & inside
            t = ct.gather(x, (plane, k[:, None], source), mask=t_held, padding_value=0, check_bounds=False)
            acc = ct.mma(operand(w), operand(t), acc)
    held = (rows < out.shape[1]) & (pixels < out.shape[2])
    ct.scatter(out, (plane, rows, pixels), acc.astype(out.dtype), mask=held, check_bounds=False)


@functools.cache
def hinted(kernel: ct.kernel, warps: int, occupancy: int) -> ct.kernel:
    """`kernel` with that many warps for the arithmetic and `occupancy` blocks on a multiprocessor."""
    return kernel.replace_hints(num_worker_warps=warps, occupancy=occupancy)


def run(
    input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int, *, BM: int, BN: int, BK: int,
    WARPS: int, OCCUPANCY: int, STRETCH: int,
) -> torch.Tensor:  # fmt: skip
    """Return out [batch, Cout, L_out] of input [batch, Cin, L] and weight [Cout, Cin / groups, taps]."""
    stream = torch.cuda.current_stream()
    batch, in_channels, length = input.shape
    out_channels, group_channels, taps = weight.shape
    out_length = (length + 2 * padding - taps) // stride + 1
    out = torch.empty((batch, out_channels, out_length), dtype=input.dtype, device=input.device)
    if stride != 1 or groups != 1:
        rows = out_channels // groups
        arrays = (
            input.view(batch * groups, group_channels, length), weight, out.view(batch * groups, rows, out_length)
        )  # fmt: skip
        grid = (ct.cdiv(rows, 64), ct.cdiv(out_length, 64), batch * groups)
        ct.launch(stream, grid, gather_kernel, (*arrays, stride, padding, groups, taps, 64, 64, 32))
        return out
    pitch = ct.cdiv(in_channels, 16) * 16
    packed_weight = torch.empty((taps, out_channels, pitch), dtype=input.dtype, device=input.device)
    grid = (taps, ct.cdiv(out_channels, SIDE), ct.cdiv(pitch, SIDE))
    ct.launch(stream, grid, weight_kernel, (weight.permute(2, 0, 1), packed_weight, SIDE))
    tiles = ct.cdiv(out_length, BN)
    stretch = min(STRETCH, tiles)
    halo = ct.cdiv(max(padding, taps), SIDE)  # tiles of x on either side of those at the results' positions
    copied = ct.cdiv(stretch * BN, SIDE) + 2 * halo
    packed = torch.empty((batch, copied * SIDE, pitch), dtype=input.dtype, device=input.device)
    kernel = hinted(tile_kernel, WARPS, OCCUPANCY)
    for first in range(0, tiles, stretch):
        grid = (copied, ct.cdiv(pitch, SIDE), batch)
        ct.launch(stream, grid, pack_kernel, (input, packed, first * BN // SIDE - halo, SIDE))
        grid = (ct.cdiv(out_channels, BM) * min(stretch, tiles - first), batch)
        arrays = (packed.view(-1, pitch), packed_weight.view(-1, pitch), out)
        numbers = (copied * SIDE, halo * SIDE - padding, first, taps, ct.cdiv(pitch, BK), BM, BN, BK)
        ct.launch(stream, grid, kernel, (*arrays, *numbers))
    return out


def _config(BM: int, BN: int, BK: int, warps: int, occupancy: int, stretch: int) -> Config:
    return {"BM": BM, "BN": BN, "BK": BK, "WARPS": warps, "OCCUPANCY": occupancy, "STRETCH": stretch}


def default(case: Case) -> Config:
    # Two blocks share a multiprocessor, and one's store overlaps the other's products: the reduction has few steps.
    # A stretch is three waves of blocks in fp16 and two in fp32, whose copies take 26 and 35 MB.
    return _config(128, 128, 128 // case.dtype_size, 4, 2, 792 if case.dtype == "fp16" else 528)


def space(case: Case) -> list[Config]:
    depth = 128 // case.dtype_size  # one row of a tile fills TMA's widest swizzle, 128 bytes
    # BM, BN, warps, occupancy, tiles of a stretch: whole waves of 132 multiprocessors, or everything at once.
    tiles = [
        (128, 128, 4, 2, 264), (128, 128, 4, 2, 528), (128, 128, 4, 2, 792), (128, 128, 4, 2, 1056),
        (128, 128, 4, 2, 1 << 20), (128, 128, 8, 1, 528), (128, 256, 8, 1, 132), (128, 256, 8, 1, 264), (128, 256, 8, 1, 396),
        (64, 256, 4, 2, 264),
    ]  # fmt: skip
    return [_config(bm, bn, depth, *rest) for bm, bn, *rest in tiles]


KERNEL = Kernel(run=run, default=default, space=space)
