"""Two-dimensional convolution in cuTile: implicit GEMM, taps outermost, on a padded copy with the channels last.

Per tap: out[Cout, pixels] += weight_tap [Cout, Cin] @ x[pixels, Cin]ᵀ, x shifted. cuTile hands a tile to TMA only if its start
along the innermost axis is a multiple of the tile, which shifted pixels are not. Therefore a first launch copies the
input with its channels innermost and its zero padding written out: a shifted tile is then a tile like any other, none
starts before the array, and both operands lie in the order that Hopper's tensor cores want, for TF32 too.
The price is 2·|input| more bytes. One tap's weights lie `taps` elements apart; they are packed as [taps, Cout, Cin].
Strided or grouped convolutions (edge cases only) gather their elements instead.
"""

import functools

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

ZERO = ct.PaddingMode.ZERO
MULTIPROCESSORS = 132  # of the H200, for the choice of a default


def rounded(x):
    """fp32 rounded to TF32, fp16 as it is. The tensor core by itself would cut off what TF32 has no bits for."""
    return x.astype(ct.tfloat32).astype(ct.float32) if x.dtype == ct.float32 else x


def operand(x):
    """What `ct.mma` multiplies on the tensor cores: fp32 as TF32."""
    return x.astype(ct.tfloat32) if x.dtype == ct.float32 else x


@ct.kernel
def pack_kernel(
    x, packed, weight, packed_weight, padding, batches, TAPS: ct.Constant[int], TILE: ct.Constant[int],
):  # fmt: skip
    """packed [batch, H + 2·padding, W + 2·padding, pitch] of x [batch, Cin, H, W]: channels last, zeros around.

    A block copies TILE pixels of one row and TILE channels. The shift by the padding is the gather's, so that the stores
    are aligned. The first TAPS blocks of axis 2 copy weight [Cout, Cin, TAPS] to packed_weight [TAPS, Cout, pitch] instead.
    """
    tile, channel, part = ct.bid(0), ct.bid(1), ct.bid(2)
    row, batch = (part - TAPS) // batches, (part - TAPS) % batches
    channels = channel * TILE + ct.arange(TILE, dtype=ct.int32)[None, :]
    if part < TAPS:
        rows = tile * TILE + ct.arange(TILE, dtype=ct.int32)[:, None]
        held = (rows < weight.shape[0]) & (channels < weight.shape[1])
        w = ct.gather(weight, (rows, channels, part), mask=held, padding_value=0, check_bounds=False)
        ct.store(packed_weight, (part, tile, channel), rounded(w).reshape((1, TILE, TILE)))
    elif (row >= padding) & (row < x.shape[2] + padding):
        # Pixels on the first axis: along it cuTile gives neighbours in a gather to neighbouring threads.
        columns = tile * TILE + ct.arange(TILE, dtype=ct.int32)[:, None] - padding
        held = (columns >= 0) & (columns < x.shape[3]) & (channels < x.shape[1])
        t = ct.gather(x, (batch, channels, row - padding, columns), mask=held, padding_value=0, check_bounds=False)
        ct.store(packed, (batch, row, tile, channel), rounded(t).reshape((1, 1, TILE, TILE)))
    else:
        ct.store(packed, (batch, row, tile, channel), ct.zeros((1, 1, TILE, TILE), packed.dtype))


@ct.kernel
def tile_kernel(
    x, weight, out, SIZE: ct.Constant[int], CHUNKS: ct.Constant[int],
    BM: ct.Constant[int], TH: ct.Constant[int], TW: ct.Constant[int], BK: ct.Constant[int],
):  # fmt: skip
    """One block, one [BM channels, TH rows, TW columns] tile of out [batch, Cout, H_out, W_out].

    x [batch, H + 2·padding, W + 2·padding, pitch], weight [SIZE·SIZE, Cout, pitch], CHUNKS = ⌈pitch / BK⌉, a constant:
    only loops of constant length are pipelined.
    """
    channel_tiles = ct.cdiv(out.shape[1], BM)  # fastest, so that neighbours share the tile of x in the L2 cache
    row, tile, batch = ct.bid(0) % channel_tiles, ct.bid(0) // channel_tiles, ct.bid(1)
    columns = ct.cdiv(out.shape[3], TW)
    i, j = tile // columns, tile % columns
    windows = x.tiled_view((1, TH, TW, BK), padding_mode=ZERO, traversal_steps=(1, 1, 1, BK))
    acc = ct.zeros((BM, TH * TW), ct.float32)
    for step in range(SIZE * SIZE * CHUNKS):
        tap, chunk = step // CHUNKS, step % CHUNKS
        w = ct.load(weight, (tap, row, chunk), (1, BM, BK), padding_mode=ZERO).reshape((BM, BK))
        t = windows.load((batch, i * TH + tap // SIZE, j * TW + tap % SIZE, chunk)).reshape((TH * TW, BK))
        acc = ct.mma(operand(w), ct.transpose(operand(t)), acc)
    ct.store(out, (batch, row, i, j), acc.astype(out.dtype).reshape((1, BM, TH, TW)))


@ct.kernel
def flat_kernel(
    x, weight, out, height, width, out_width, SIZE: ct.Constant[int], CHUNKS: ct.Constant[int],
    BM: ct.Constant[int], BN: ct.Constant[int], BK: ct.Constant[int],
):  # fmt: skip
    """The same for TF32, whose tiles reach the tensor core as they are only from arrays with two axes.

    x [batch·height·width, pitch], height and width with the padding, weight [SIZE²·Cout, pitch], out [batch, Cout,
    H_out·out_width]. A tile is a run of BN pixels of rows that are `width` long: the results beyond out_width, and of
    channels beyond Cout, are not stored.
    """
    out_channels = out.shape[1]
    channel_tiles = ct.cdiv(out_channels, BM)
    row, tile, batch = ct.bid(0) % channel_tiles, ct.bid(0) // channel_tiles, ct.bid(1)
    start = batch * height * width + tile * BN
    windows = x.tiled_view((BN, BK), padding_mode=ZERO, traversal_steps=(1, BK))
    weights = weight.tiled_view((BM, BK), padding_mode=ZERO, traversal_steps=(1, BK))
    acc = ct.zeros((BM, BN), ct.float32)
    for step in range(SIZE * SIZE * CHUNKS):
        tap, chunk = step // CHUNKS, step % CHUNKS
        w = weights.load((tap * out_channels + row * BM, chunk))
        t = windows.load((start + tap // SIZE * width + tap % SIZE, chunk))
        acc = ct.mma(operand(w), ct.transpose(operand(t)), acc)
    # Pixels on the first axis: that is the one along which cuTile gives neighbours in a scatter to neighbouring threads.
    channels = row * BM + ct.arange(BM, dtype=ct.int32)[None, :]
    pixels = tile * BN + ct.arange(BN, dtype=ct.int32)[:, None]
    out_pixels = pixels // width * out_width + pixels % width
    held = (channels < out_channels) & (pixels % width < out_width) & (out_pixels < out.shape[2])
    ct.scatter(out, (batch, channels, out_pixels), ct.transpose(acc).astype(out.dtype), mask=held, check_bounds=False)


@ct.kernel
def gather_kernel(
    x, weight, out, height, width, out_width, stride, padding, groups,
    SIZE: ct.Constant[int], BM: ct.Constant[int], BN: ct.Constant[int], BK: ct.Constant[int],
):  # fmt: skip
    """Any convolution, element by element; a [BM, BN] tile of one (batch, group), channels counted per group.

    x [batch·groups, Cin/groups, H·W], weight [Cout, Cin/groups, taps], out [batch·groups, Cout/groups, H_out·W_out].
    """
    plane = ct.bid(2)
    rows = ct.bid(0) * BM + ct.arange(BM, dtype=ct.int32)[:, None]
    pixels = ct.bid(1) * BN + ct.arange(BN, dtype=ct.int32)[None, :]
    weight_rows = plane % groups * out.shape[1] + rows
    acc = ct.zeros((BM, BN), ct.float32)
    for tap in range(SIZE * SIZE):
        y = pixels // out_width * stride + tap // SIZE - padding
        column = pixels % out_width * stride + tap % SIZE - padding
        inside = (y >= 0) & (y < height) & (column >= 0) & (column < width)
        source = y * width + column
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
    input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int, *, BM: int, TH: int, TW: int,
    BK: int, WARPS: int, OCCUPANCY: int,
) -> torch.Tensor:  # fmt: skip
    """Return out [batch, Cout, H_out, W_out] of input [batch, Cin, H, W], weight [Cout, Cin / groups, size, size]."""
    stream = torch.cuda.current_stream()
    batch, in_channels, height, width = input.shape
    out_channels, group_channels, size = weight.shape[:3]
    out_height, out_width = ((extent + 2 * padding - size) // stride + 1 for extent in (height, width))
    out = torch.empty((batch, out_channels, out_height, out_width), dtype=input.dtype, device=input.device)
    weight = weight.view(out_channels, group_channels, size * size)
    if stride != 1 or groups != 1:
        rows = out_channels // groups
        arrays = (input.view(batch * groups, group_channels, -1), weight, out.view(batch * groups, rows, -1))
        numbers = (height, width, out_width, stride, padding, groups, size, 64, 64, 32)
        grid = (ct.cdiv(rows, 64), ct.cdiv(out_height * out_width, 64), batch * groups)
        ct.launch(stream, grid, gather_kernel, (*arrays, *numbers))
        return out
    pitch = ct.cdiv(in_channels, 16) * 16
    padded_height, padded_width = height + 2 * padding, width + 2 * padding
    packed = torch.empty((batch, padded_height, padded_width, pitch), dtype=input.dtype, device=input.device)
    packed_weight = torch.empty((size * size, out_channels, pitch), dtype=input.dtype, device=input.device)
    width_tiles = max(ct.cdiv(padded_width, 64), ct.cdiv(out_channels, 64))
    grid = (width_tiles, ct.cdiv(pitch, 64), size * size + padded_height * batch)
    ct.launch(stream, grid, pack_kernel, (input, packed, weight, packed_weight, padding, batch, size * size, 64))
    chunks, channel_tiles = ct.cdiv(pitch, BK), ct.cdiv(out_channels, BM)
    if input.dtype == torch.float32:
        pixels = (out_height - 1) * padded_width + out_width
        arrays = (packed.view(-1, pitch), packed_weight.view(-1, pitch), out.view(batch, out_channels, -1))
        arguments = (*arrays, padded_height, padded_width, out_width, size, chunks, BM, TH * TW, BK)
        grid = (channel_tiles * ct.cdiv(pixels, TH * TW), batch)
        ct.launch(stream, grid, hinted(flat_kernel, WARPS, OCCUPANCY), arguments)
        return out
    grid = (channel_tiles * ct.cdiv(out_height, TH) * ct.cdiv(out_width, TW), batch)
    arguments = (packed, packed_weight, out, size, chunks, BM, TH, TW, BK)
    ct.launch(stream, grid, hinted(tile_kernel, WARPS, OCCUPANCY), arguments)
    return out


def _config(BM: int, TH: int, TW: int, BK: int, warps: int, occupancy: int) -> Config:
    return {"BM": BM, "TH": TH, "TW": TW, "BK": BK, "WARPS": warps, "OCCUPANCY": occupancy}


def default(case: Case) -> Config:
    # The least work for the busiest multiprocessor; a block costs its results and 8192 more for its first loads and its stores.
    tiles = [(128, 8, 16, 4, 1), (128, 4, 16, 4, 2), (64, 4, 16, 4, 2), (64, 2, 16, 4, 2), (64, 1, 16, 4, 2)]
    width = case["W"] or case["H"]

    def rounds(tile: tuple[int, ...]) -> int:
        bm, th, tw, _, occupancy = tile
        blocks = -(-case["Cout"] // bm) * -(-case["H"] // th) * -(-width // tw)
        return -(-blocks // (MULTIPROCESSORS * occupancy))

    def cost(tile: tuple[int, ...]) -> int:
        bm, th, tw, _, occupancy = tile
        return rounds(tile) * (occupancy * bm * th * tw + 8192)

    bm, th, tw, warps, occupancy = tile = min(tiles, key=cost)
    # Two large blocks at a time overlap one's stores with the other's products. Three rounds would leave half of a second pair.
    if case.dtype == "fp16" and tile == tiles[0] and rounds(tile) not in (1, 3):
        occupancy = 2
    return _config(bm, th, tw, 128 // case.dtype_size, warps, occupancy)


def space(case: Case) -> list[Config]:
    depth = 128 // case.dtype_size  # one row of a tile fills TMA's widest swizzle, 128 bytes
    tiles = [
        (64, 1, 16, 4, 2), (64, 2, 16, 4, 2), (64, 4, 16, 4, 2), (64, 8, 16, 4, 2), (128, 4, 16, 4, 2),
        (128, 8, 16, 4, 1), (128, 8, 16, 4, 2), (128, 8, 16, 8, 1), (128, 16, 16, 8, 1),
    ]  # fmt: skip
    return [_config(bm, th, tw, depth, warps, occupancy) for bm, th, tw, warps, occupancy in tiles]


KERNEL = Kernel(run=run, default=default, space=space)
