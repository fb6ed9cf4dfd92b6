"""One-dimensional convolution in cuTile; in fp16 results are shifted instead of inputs.

fp16: out[:, p] = Σ_t (W_t x)[:, p + t - 1]. The grid is bound by memory. So a block loads the aligned tile x [Cin, 128] as it lies,
multiplies it with all three taps, whose weights stay in shared memory, and adds the products shifted by one column. Of
128 columns come 112 results, so that every tile starts at whole 16 bytes and TMA moves it both ways. A column's value
moves by exchanges with the column whose number differs in one bit: a lane or a register of the tensor cores' layout.

Everything else, TF32 above all, which needs the channels innermost: implicit GEMM, taps outermost, on a padded copy with the channels
last. Per tap: out[Cout, positions] += weight_tap [Cout, Cin] @ x[positions, Cin]ᵀ, x shifted. No tile may start at any position of
the innermost axis. Therefore a first launch copies the input with its channels innermost and its zero padding written out: a
shifted tile is then a tile like any other, none starts before the array, and both operands lie in the order that
Hopper's tensor cores want. The price is 2·|input| more bytes. The reduction is short, so a block goes through many
tiles: cuTile's loading warp fetches the next while the results of one are stored. One tap's weights lie `taps` elements
apart; in either case the first launch packs them as [taps, Cout, Cin]. Strided or grouped convolutions (edge cases only)
gather their elements instead.
"""

import functools

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors

ZERO = ct.PaddingMode.ZERO
ROWS = 16  # of weights that one block packs
TAPS_SHIFTED = 3  # for whose products there are registers
COLUMNS, BITS = 128, 7  # of a tile in fp16, and of their numbers
MOST_CHANNELS = 128  # whose weights leave room for x
RESULTS = 112  # of them, in three stores of 64, 32 and 16
MULTIPROCESSORS = 132  # of the H200, for the choice of a default


def rounded(x):
    """fp32 rounded to TF32, fp16 as it is. The tensor core by itself would cut off what TF32 has no bits for."""
    return x.astype(ct.tfloat32).astype(ct.float32) if x.dtype == ct.float32 else x


def operand(x):
    """What `ct.mma` multiplies on the tensor cores: fp32 as TF32."""
    return x.astype(ct.tfloat32) if x.dtype == ct.float32 else x


def pack_weight(weight, packed_weight, part, channel, TAPS, TILE):
    """Copy one part of weight [Cout, Cin, TAPS] to packed_weight [TAPS, Cout, pitch]: a tap of ROWS rows and TILE channels."""
    tap, row = part % TAPS, part // TAPS
    rows = row * ROWS + ct.arange(ROWS, dtype=ct.int32)[:, None]
    channels = channel * TILE + ct.arange(TILE, dtype=ct.int32)[None, :]
    held = (rows < weight.shape[0]) & (channels < weight.shape[1])
    w = ct.gather(weight, (rows, channels, tap), mask=held, padding_value=0, check_bounds=False)
    ct.store(packed_weight, (tap, row, channel), rounded(w).reshape((1, ROWS, TILE)))


@ct.kernel
def pack_weight_kernel(weight, packed_weight, TAPS: ct.Constant[int], TILE: ct.Constant[int]):
    """Only the weights. Blocks: (taps · tiles of ROWS output channels, tiles of input channels)."""
    pack_weight(weight, packed_weight, ct.bid(0), ct.bid(1), TAPS, TILE)


@ct.kernel
def pack_kernel(x, packed, weight, packed_weight, padding, TAPS: ct.Constant[int], TILE: ct.Constant[int]):
    """packed [batch, L + 2·padding, pitch] of x [batch, Cin, L]: channels last, zeros around; a tile per block.

    The first blocks of axis 0 copy weight [Cout, Cin, TAPS] to packed_weight [TAPS, Cout, pitch] instead.
    """
    part, channel, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    weight_parts = TAPS * ct.cdiv(weight.shape[0], ROWS)
    tile = part - weight_parts
    if tile >= 0:
        t = ct.load(x, (batch, channel, tile), (1, TILE, TILE), padding_mode=ZERO)
        # Steps of one position: the tile may start anywhere.
        tiles = packed.tiled_view((1, TILE, TILE), traversal_steps=(1, 1, TILE))
        tiles.store((batch, tile * TILE + padding, channel), rounded(t).permute((0, 2, 1)))
        zeros = ct.zeros((1, 1, TILE), packed.dtype)
        edge = packed.tiled_view((1, 1, TILE))
        if tile == 0:
            for i in range(padding):
                edge.store((batch, i, channel), zeros)
        if part == ct.num_blocks(0) - 1:
            for i in range(padding):
                edge.store((batch, packed.shape[1] - 1 - i, channel), zeros)
    elif batch == 0:
        pack_weight(weight, packed_weight, part, channel, TAPS, TILE)


@ct.kernel
def tile_kernel(
    x, weight, out, length, TAPS: ct.Constant[int], CHUNKS: ct.Constant[int],
    BM: ct.Constant[int], BN: ct.Constant[int], BK: ct.Constant[int],
):  # fmt: skip
    """A block makes every blocks-th tile, [BM channels, BN positions] of out [batch, Cout, L_out].

    x [batch·length, pitch], length = L + 2·padding, weight [TAPS·Cout, pitch]: with two axes only, TF32 tiles reach the
    tensor core as they are. What a tile reads of the next batch entry or tap goes into results that are not stored.
    CHUNKS = ⌈pitch / BK⌉ is a constant: only loops of constant length are pipelined.
    """
    out_channels = out.shape[1]
    channel_tiles = ct.cdiv(out_channels, BM)  # fastest, so that neighbours share the tile of x in the L2 cache
    length_tiles = ct.cdiv(out.shape[2], BN)
    windows = x.tiled_view((BN, BK), padding_mode=ZERO, traversal_steps=(1, BK))
    weights = weight.tiled_view((BM, BK), padding_mode=ZERO, traversal_steps=(1, BK))
    for index in range(ct.bid(0), channel_tiles * length_tiles * out.shape[0], ct.num_blocks(0)):
        row, tile = index % channel_tiles, index // channel_tiles % length_tiles
        batch = index // channel_tiles // length_tiles
        acc = ct.zeros((BM, BN), ct.float32)
        for step in range(TAPS * CHUNKS):
            tap, chunk = step // CHUNKS, step % CHUNKS
            w = weights.load((tap * out_channels + row * BM, chunk))
            t = windows.load((batch * length + tile * BN + tap, chunk))
            acc = ct.mma(operand(w), ct.transpose(operand(t)), acc)
        ct.store(out, (batch, row, tile), acc.astype(out.dtype).reshape((1, BM, BN)))


def flipped(x, BIT):
    """x [M, N]; in every column what the column has whose number differs in that bit."""
    pairs = ct.reshape(x, (x.shape[0], x.shape[1] >> (BIT + 1), 2, 1 << BIT))
    return ct.reshape(ct.sum(pairs, 2, keepdims=True) - pairs, x.shape)


def moved(x, column, FIRST, FORTH):
    """x [M, COLUMNS] fp32 moved by 2^FIRST columns, cyclic: to higher columns if FORTH is 1, to lower ones if it is 0."""
    x = ct.bitcast(x, ct.uint32)
    result = x
    settled = column < 0
    for bit in ct.static_iter(range(FIRST, BITS)):
        x = flipped(x, bit)
        result = ct.where(settled, result, x)
        settled = settled | (((column >> bit) & 1) == FORTH)
    return ct.bitcast(result, ct.float32)


@ct.kernel
def shift_kernel(x, weight, out, tiles, CHANNELS: ct.Constant[int], BM: ct.Constant[int]):
    """A block makes every blocks-th tile of BM channels and RESULTS positions of out [batch, Cout, L].

    x [batch, Cin, L] with at most CHANNELS channels, weight [3, Cout, pitch]. A tile's first 8 columns belong to the tile before,
    but for the first tile, and so do its last 8 to the next.
    """
    row, batch = ct.bid(1), ct.bid(2)
    left_weight = ct.load(weight, (0, row, 0), (1, BM, CHANNELS), padding_mode=ZERO).reshape((BM, CHANNELS))
    middle_weight = ct.load(weight, (1, row, 0), (1, BM, CHANNELS), padding_mode=ZERO).reshape((BM, CHANNELS))
    right_weight = ct.load(weight, (2, row, 0), (1, BM, CHANNELS), padding_mode=ZERO).reshape((BM, CHANNELS))
    windows = x.tiled_view((1, CHANNELS, COLUMNS), padding_mode=ZERO, traversal_steps=(1, CHANNELS, 8))
    out64 = out.tiled_view((1, BM, 64), traversal_steps=(1, BM, 8))
    out32 = out.tiled_view((1, BM, 32), traversal_steps=(1, BM, 8))
    out16 = out.tiled_view((1, BM, 16), traversal_steps=(1, BM, 8))
    out8 = out.tiled_view((1, BM, 8))
    column = ct.arange(COLUMNS, dtype=ct.int32)[None, :]
    for tile in range(ct.bid(0), tiles, ct.num_blocks(0)):
        # In chunks of 8. The last tile ends with the array, and may make some results a second time.
        first = ct.minimum(tile * (RESULTS // 8), out.shape[2] // 8 - (RESULTS // 8 + 1))
        t = windows.load((batch, 0, first)).reshape((CHANNELS, COLUMNS))
        left = ct.mma(left_weight, t, ct.zeros((BM, COLUMNS), ct.float32))
        middle = ct.mma(middle_weight, t, ct.zeros((BM, COLUMNS), ct.float32))
        right = ct.mma(right_weight, t, ct.zeros((BM, COLUMNS), ct.float32))
        before = ct.where(column == 0, 0.0, moved(left, column, 0, 1))  # the padding
        total = before + middle + moved(right, column, 0, 0)
        # Results first, then the other columns; the first 8 are results in the first tile only.
        total = moved(total, column, 3, 0).astype(out.dtype)
        out64.store((batch, row, first + 1), ct.extract(total, (0, 0), (BM, 64)).reshape((1, BM, 64)))
        out32.store((batch, row, first + 9), ct.extract(total, (0, 2), (BM, 32)).reshape((1, BM, 32)))
        out16.store((batch, row, first + 13), ct.extract(total, (0, 6), (BM, 16)).reshape((1, BM, 16)))
        if tile == 0:
            out8.store((batch, row, 0), ct.extract(total, (0, 15), (BM, 8)).reshape((1, BM, 8)))


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
    WARPS: int, OCCUPANCY: int,
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
    blocks = multiprocessors(input.device) * OCCUPANCY
    # TMA wants strides of whole 16 bytes.
    whole = length % 8 == 0 and length >= RESULTS + 8 and input.data_ptr() % 16 == 0
    if input.dtype == torch.float16 and (taps, padding) == (TAPS_SHIFTED, 1) and whole and in_channels <= MOST_CHANNELS:
        grid = (taps * ct.cdiv(out_channels, ROWS), ct.cdiv(pitch, 64))
        ct.launch(stream, grid, pack_weight_kernel, (weight, packed_weight, taps, 64))
        tiles, row_tiles = ct.cdiv(length - 8, RESULTS), ct.cdiv(out_channels, BM)
        grid = (min(tiles, max(1, blocks // (row_tiles * batch))), row_tiles, batch)
        channels = max(16, 1 << (in_channels - 1).bit_length())
        arguments = (input, packed_weight, out, tiles, channels, BM)
        ct.launch(stream, grid, hinted(shift_kernel, WARPS, OCCUPANCY), arguments)
        return out
    packed = torch.empty((batch, length + 2 * padding, pitch), dtype=input.dtype, device=input.device)
    grid = (taps * ct.cdiv(out_channels, ROWS) + ct.cdiv(length, 64), ct.cdiv(pitch, 64), batch)
    ct.launch(stream, grid, pack_kernel, (input, packed, weight, packed_weight, padding, taps, 64))
    tiles = batch * ct.cdiv(out_channels, BM) * ct.cdiv(out_length, BN)
    grid = (min(tiles, blocks),)
    arrays = (packed.view(-1, pitch), packed_weight.view(-1, pitch), out)
    arguments = (*arrays, length + 2 * padding, taps, ct.cdiv(pitch, BK), BM, BN, BK)
    ct.launch(stream, grid, hinted(tile_kernel, WARPS, OCCUPANCY), arguments)
    return out


def _config(BM: int, BN: int, BK: int, warps: int, occupancy: int) -> Config:
    return {"BM": BM, "BN": BN, "BK": BK, "WARPS": warps, "OCCUPANCY": occupancy}


def default(case: Case) -> Config:
    if case.dtype == "fp16":
        # Two blocks of a multiprocessor: one multiplies while the other shifts and stores.
        return _config(64, 128, 64, 4, 2)
    # What limits the products is L2, from which a large tile reads the weights less often.
    if case["L"] >= MULTIPROCESSORS * 256:
        return _config(128, 256, 32, 8, 1)
    return _config(64, 128, 32, 4, 2)


def space(case: Case) -> list[Config]:
    if case.dtype == "fp16":  # BN and BK concern the general path only
        return [_config(64, 128, 64, 4, 2), _config(128, 128, 64, 8, 1)]
    tiles = [(64, 128, 4, 2), (128, 128, 4, 1), (128, 128, 8, 1), (128, 256, 8, 1)]
    return [_config(bm, bn, 32, warps, occupancy) for bm, bn, warps, occupancy in tiles]


KERNEL = Kernel(run=run, default=default, space=space)
