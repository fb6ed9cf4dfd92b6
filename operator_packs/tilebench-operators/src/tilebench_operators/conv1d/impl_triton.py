"""One-dimensional convolution in Triton that shifts results instead of inputs.

out[:, p] = Σ_t (W_t x)[:, p + t - 1]. The grid is bound by memory (192 FLOP per byte in fp16), so that a launch which writes x
channels-last would double the traffic; and neither TMA nor the tensor cores can start a tile at any position. So a program loads
the aligned tile x [Cin, BN] as it lies, multiplies it with all three taps, and adds the three products shifted by one
column: of BN columns come BN - 8 results, so that every tile starts at whole 16 bytes.

In registers every lane of four holds two neighbouring columns of eight. Half of what a shift moves is therefore in the right
lane already. The rest moves by exchanges with the column whose number differs in one bit, which Triton lowers to one
shuffle or to a renamed register, whatever the layout. Results leave straight from registers, since going through shared memory
would take the room of a stage: fp32 by 8 bytes; of fp16 lanes collect 16 bytes by more such exchanges.

fp16: the tensor cores take x as it lies. All taps' weights stay in shared memory, and programs go through many tiles. Two of
them share a multiprocessor, and one multiplies while the other shifts and stores.
fp32: TF32 operands must have the channels innermost, so that x is turned in registers on its way from one part of shared memory to
another. The weights are too large to stay: they come step by step from the L2 cache, packed and rounded by a small first launch.

Other taps and paddings, rows that are not whole chunks of 8, strides and groups (edge cases only) take `tilebench_operators._conv`,
and so do GPUs before Hopper.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel, multiprocessors
from triton.language.target_info import current_target
from triton.tools.tensor_descriptor import TensorDescriptor

from tilebench_operators._conv import convolution, pack_row, to_operand

TAPS = 3
CHUNK = tl.constexpr(8)  # columns that a tile loads beyond its results: 16 bytes, in fp32 32
MOST_CHANNELS = 128  # in fp16, whose weights leave room for the stages
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def flipped(x, BIT: tl.constexpr):
    """x [M, N] int32; in every column what the column has whose number differs in that bit."""
    pairs = x.reshape(x.shape[0], x.shape[1] >> (BIT + 1), 2, 1 << BIT)
    return (tl.sum(pairs, 2, keep_dims=True) - pairs).reshape(x.shape[0], x.shape[1])


@triton.jit
def half(x, BIT: tl.constexpr, VALUE: tl.constexpr):
    """The columns of x [M, N] int32 whose number has VALUE in that bit: [M, N / 2]."""
    pairs = x.reshape(x.shape[0], x.shape[1] >> (BIT + 1), 2, 1 << BIT)
    chosen = tl.arange(0, 2)[None, None, :, None] == VALUE
    return tl.sum(tl.where(chosen, pairs, 0), 2).reshape(x.shape[0], x.shape[1] // 2)


@triton.jit
def exchanged(x, LOW: tl.constexpr, HIGH: tl.constexpr):
    """x [M, N] int32 with two bits of the column's number swapped, as its halves by the bit HIGH: 2 · [M, N / 2]."""
    low = half(x, HIGH, 0)
    high = half(x, HIGH, 1)
    upper = ((tl.arange(0, x.shape[1] // 2)[None, :] >> LOW) & 1) == 1
    received = flipped(tl.where(upper, low, high), LOW)
    return tl.where(upper, received, low), tl.where(upper, high, received)


@triton.jit
def neighbours(left, right, BITS: tl.constexpr):
    """What `left` [M, 2^BITS] int32 has one column before, and `right` one column behind; cyclic.

    A column's number changes in its lowest bits. Of the first bit's exchange odd columns have what is left of them, and
    even ones what is right of them; what must go on takes the same exchanges for both.
    """
    column = tl.arange(0, left.shape[1])[None, :]
    odd = (column & 1) == 1
    left = flipped(left, 0)
    right = flipped(right, 0)
    carried = tl.where(odd, right, left)
    moved = carried
    settled = column < 0
    for bit in tl.static_range(1, BITS):
        carried = flipped(carried, bit)
        moved = tl.where(settled, moved, carried)
        settled = settled | (((column >> bit) & 1) != (column & 1))
    return tl.where(odd, left, moved), tl.where(odd, moved, right)


@triton.jit
def shifted_sum(left, middle, right, BITS: tl.constexpr):
    """The products of the three taps [M, 2^BITS] -> sums of even and of odd columns, 2 · [M, 2^BITS / 2].

    Even and odd columns lie in different registers. The first and the last column lack a neighbour and come out wrong.
    """
    M: tl.constexpr = left.shape[0]
    left_even, left_odd = left.reshape(M, 1 << (BITS - 1), 2).split()
    even, odd = middle.reshape(M, 1 << (BITS - 1), 2).split()
    right_even, right_odd = right.reshape(M, 1 << (BITS - 1), 2).split()
    left_odd = left_odd.to(tl.int32, bitcast=True)
    right_even = right_even.to(tl.int32, bitcast=True)
    before, behind = neighbours(left_odd, right_even, BITS - 1)
    even = before.to(tl.float32, bitcast=True) + even + right_odd
    odd = left_even + odd + behind.to(tl.float32, bitcast=True)
    return even, odd


@triton.jit
def packed(low, high):
    """Two fp32 as fp16 in one int32."""
    if INTERPRETED:
        low = low.to(tl.float16).to(tl.uint16, bitcast=True).to(tl.int32)
        high = high.to(tl.float16).to(tl.uint16, bitcast=True).to(tl.int32)
        return low | (high << 16)
    else:
        return tl.inline_asm_elementwise(
            "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", [low, high], dtype=tl.int32, is_pure=True, pack=1
        )


@triton.jit
def store_chunks(targets, first, second, third, fourth, parts):
    """Store 16 bytes from each target on, where `parts` is 3; only the first 8 bytes where it is 1, the others where it is 2.

    Four separate words of a chunk are what `tl.store` would join by way of shared memory.
    """
    if INTERPRETED:
        words = targets.to(tl.pointer_type(tl.int32))
        tl.store(words, first, mask=(parts & 1) != 0)
        tl.store(words + 1, second, mask=(parts & 1) != 0)
        tl.store(words + 2, third, mask=(parts & 2) != 0)
        tl.store(words + 3, fourth, mask=(parts & 2) != 0)
    else:
        tl.inline_asm_elementwise(
            """{
            .reg .pred whole, front, back;
            setp.eq.s32 whole, $6, 3;
            setp.eq.s32 front, $6, 1;
            setp.eq.s32 back, $6, 2;
            @whole st.global.v4.b32 [$1], {$2, $3, $4, $5};
            @front st.global.v2.b32 [$1], {$2, $3};
            @back st.global.v2.b32 [$1 + 8], {$4, $5};
            mov.b32 $0, 0;
            }""",
            "=r,l,r,r,r,r,r", [targets, first, second, third, fourth, parts], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip


@triton.jit
def store_pairs(targets, even, odd, held):
    """Store two neighbouring fp32 from each target on where `held`."""
    if INTERPRETED:
        tl.store(targets, even, mask=held)
        tl.store(targets + 1, odd, mask=held)
    else:
        even = even.to(tl.int32, bitcast=True)
        odd = odd.to(tl.int32, bitcast=True)
        tl.inline_asm_elementwise(
            """{
            .reg .pred held;
            setp.ne.s32 held, $4, 0;
            @held st.global.v2.b32 [$1], {$2, $3};
            mov.b32 $0, 0;
            }""",
            "=r,l,r,r,r", [targets, even, odd, held.to(tl.int32)], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip


@triton.jit
def load_weights(weight_ptr, rows, in_channels, out_channels, tap, BK: tl.constexpr):
    """The weights [BM, BK] of one tap, from weight [Cout, Cin, 3]."""
    channels = tl.arange(0, BK)[:, None]  # the first axis, along which Triton lays lanes where no axis is contiguous
    mask = (channels < in_channels) & (rows < out_channels)
    return tl.trans(tl.load(weight_ptr + (rows * in_channels + channels) * 3 + tap, mask=mask, other=0))


@triton.jit
def store_tile(planes, held, start, length, left, middle, right, BITS: tl.constexpr):
    """Add the products of the three taps, and store them from the column `start` on where rows are `held`."""
    even, odd = shifted_sum(left, middle, right, BITS)
    # Words of two columns; the lowest two bits of their number count the words of a chunk, and become separate tensors.
    lower, upper = exchanged(packed(even, odd), 0, 2)
    first, third = exchanged(lower, 1, 2)
    second, fourth = exchanged(upper, 1, 2)
    chunk = tl.arange(0, 1 << (BITS - 3))[None, :]
    # Half a chunk at either end belongs to the tiles beside.
    parts = tl.where(chunk == 0, 2, tl.where(chunk == (1 << (BITS - 3)) - 1, 1, 3))
    columns = start + chunk * CHUNK
    inside = held & (columns >= 0) & (columns < length)
    store_chunks(planes + columns, first, second, third, fourth, tl.where(inside, parts, 0))


@triton.jit(do_not_specialize=["length", "tiles"])
def shift_kernel(
    x_desc, weight_ptr, out_ptr, length, in_channels, out_channels, tiles,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    """A program makes every programs-th tile of BM channels and BN - 8 positions of out [batch, Cout, length].

    Boxes: x [1, BK, BN] of [batch, Cin, length], Cin at most BK, BN = 2^BITS. Programs: (channel tiles, programs, batch).
    """
    row = tl.program_id(0) * BM
    weight_rows = row + tl.arange(0, BM)[None, :]
    left_weight = load_weights(weight_ptr, weight_rows, in_channels, out_channels, 0, BK)
    weight = load_weights(weight_ptr, weight_rows, in_channels, out_channels, 1, BK)
    right_weight = load_weights(weight_ptr, weight_rows, in_channels, out_channels, 2, BK)
    rows = row + tl.arange(0, BM)[:, None]
    batch = tl.program_id(2)
    planes = out_ptr + (batch * out_channels + rows).to(tl.int64) * length
    held = rows < out_channels
    # Products end up in the next turn, so that x of the next tile is loaded under them: the first turn stores nothing.
    left = tl.zeros([BM, BN], tl.float32)
    middle = tl.zeros([BM, BN], tl.float32)
    right = tl.zeros([BM, BN], tl.float32)
    start = -BN
    for tile in range(tl.program_id(1), tiles, tl.num_programs(1)):
        store_tile(planes, held, start, length, left, middle, right, BITS)
        start = tile * (BN - CHUNK) - CHUNK
        x = x_desc.load([batch, 0, start]).reshape(BK, BN)  # zeros outside
        left, middle, right = tl.dot(left_weight, x), tl.dot(weight, x), tl.dot(right_weight, x)
    store_tile(planes, held, start, length, left, middle, right, BITS)


@triton.jit
def pack_kernel(weight_ptr, packed_ptr, in_channels, out_channels, pitch, TAPS: tl.constexpr, BC: tl.constexpr):
    """weight [Cout, Cin, TAPS] to packed [TAPS, Cout, pitch], rounded to TF32. Programs: (Cout, channel tiles of BC)."""
    channels = tl.program_id(1) * BC + tl.arange(0, BC)
    pack_row(weight_ptr, packed_ptr, tl.program_id(0), channels, in_channels, out_channels, pitch, TAPS)


@triton.jit(do_not_specialize=["length", "tiles"])
def turn_kernel(
    x_desc, weight_desc, out_ptr, length, out_channels, tiles,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BITS: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """A program makes every programs-th tile of BM channels and BN - 8 positions of out [batch, Cout, length], fp32.

    Boxes: x [1, BN / 8, BK, 8] of [batch, length / 8, Cin, 8], weight [1, BM, BK] of [3, Cout, Cin]; BN = 2^BITS and
    STEPS = ⌈Cin / BK⌉. With only 8 positions innermost the lanes of a warp have different channels, and turn x without bank
    conflicts. Steps of all tiles are one loop, so that a tile's first step is loaded while the one before is stored.
    """
    row_tiles = tl.cdiv(out_channels, BM)  # fastest, so that neighbours share the tile of x in the L2 cache
    batch = tl.program_id(1)
    pairs = tl.arange(0, BN // 2)[None, :] * 2
    # Half a chunk at either end belongs to the tiles beside.
    own = (pairs >= CHUNK // 2) & (pairs < BN - CHUNK // 2)
    left = tl.zeros([BM, BN], tl.float32)
    middle = tl.zeros([BM, BN], tl.float32)
    right = tl.zeros([BM, BN], tl.float32)
    turns = tl.cdiv(tiles * row_tiles - tl.program_id(0), tl.num_programs(0))
    for step in range(turns * STEPS):
        index = tl.program_id(0) + step // STEPS * tl.num_programs(0)
        row = index % row_tiles * BM
        first_chunk = index // row_tiles * (BN // CHUNK - 1) - 1
        channel = step % STEPS * BK
        chunks = to_operand(x_desc.load([batch, first_chunk, channel, 0])).reshape(BN // CHUNK, BK, CHUNK)
        x = chunks.permute(1, 0, 2).reshape(BK, BN)
        left = tl.dot(weight_desc.load([0, row, channel]).reshape(BM, BK), x, left)
        middle = tl.dot(weight_desc.load([1, row, channel]).reshape(BM, BK), x, middle)
        right = tl.dot(weight_desc.load([2, row, channel]).reshape(BM, BK), x, right)
        if step % STEPS == STEPS - 1:
            even, odd = shifted_sum(left, middle, right, BITS)
            rows = row + tl.arange(0, BM)[:, None]
            columns = first_chunk * CHUNK + pairs
            held = own & (rows < out_channels) & (columns >= 0) & (columns < length)
            planes = (batch * out_channels + rows).to(tl.int64) * length
            store_pairs(out_ptr + planes + columns, even, odd, held)
            left = tl.zeros([BM, BN], tl.float32)
            middle = tl.zeros([BM, BN], tl.float32)
            right = tl.zeros([BM, BN], tl.float32)


def has_tma() -> bool:
    """Whether descriptors are loaded by hardware, and 192 sums per thread leave registers for the rest."""
    if triton.knobs.runtime.interpret:
        return True
    target = current_target()
    return target.backend == "cuda" and target.arch >= 90


def run(
    input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int, *,
    BM: int, BN: int, BK: int, num_warps: int, num_stages: int,
) -> torch.Tensor:  # fmt: skip
    """Return out [batch, Cout, L_out] of input [batch, Cin, L] and weight [Cout, Cin / groups, taps]."""
    batch, in_channels, length = input.shape
    out_channels = weight.shape[0]
    plain = (weight.shape[2], stride, padding, groups) == (TAPS, 1, 1, 1)
    whole = length % 8 == 0 and input.data_ptr() % 16 == 0
    held = input.dtype == torch.float32 or (input.dtype == torch.float16 and in_channels <= MOST_CHANNELS)
    if not plain or not whole or not held or not has_tma():
        return convolution(
            input,
            weight,
            stride,
            padding,
            groups,
            BM=BM,
            BH=1,
            BW=BN,
            BK=BK,
            num_warps=num_warps,
            num_stages=num_stages,
        )
    out = torch.empty((batch, out_channels, length), dtype=input.dtype, device=input.device)
    row_tiles = triton.cdiv(out_channels, BM)
    tiles = triton.cdiv(length + 4, BN - 8)  # the first tile's results begin 4 positions before the first one
    bits = BN.bit_length() - 1
    resident = multiprocessors(input.device) * (8 // num_warps)
    if input.dtype == torch.float32:
        pitch = triton.cdiv(in_channels, 4) * 4  # TMA wants strides of whole 16 bytes
        packed_weight = torch.empty((TAPS, out_channels, pitch), dtype=input.dtype, device=input.device)
        pack_kernel[out_channels, triton.cdiv(in_channels, 128)](
            weight, packed_weight, in_channels, out_channels, pitch, TAPS=TAPS, BC=128, num_warps=4
        )
        chunks = input.view(batch, in_channels, length // 8, 8).permute(0, 2, 1, 3)
        x_desc = TensorDescriptor(chunks, list(chunks.shape), list(chunks.stride()), [1, BN // 8, BK, 8])
        weight_shape = [TAPS, out_channels, in_channels]
        weight_desc = TensorDescriptor(packed_weight, weight_shape, list(packed_weight.stride()), [1, BM, BK])
        programs = min(tiles * row_tiles, max(1, resident // batch))
        turn_kernel[programs, batch](
            x_desc, weight_desc, out, length, out_channels, tiles,
            BM=BM, BN=BN, BK=BK, BITS=bits, STEPS=triton.cdiv(in_channels, BK), num_warps=num_warps, num_stages=num_stages,
        )  # fmt: skip
        return out
    channels = max(16, triton.next_power_of_2(in_channels))
    x_desc = TensorDescriptor(input, list(input.shape), list(input.stride()), [1, channels, BN])
    programs = min(tiles, max(1, resident // (row_tiles * batch)))
    shift_kernel[row_tiles, programs, batch](
        x_desc, weight, out, length, in_channels, out_channels, tiles,
        BM=BM, BN=BN, BK=channels, BITS=bits, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return out


def _config(BM: int, BN: int, BK: int, num_warps: int, num_stages: int) -> Config:
    return {"BM": BM, "BN": BN, "BK": BK, "num_warps": num_warps, "num_stages": num_stages}


def default(case: Case) -> Config:
    # 192 sums per thread. In fp32 all channels in one program, which reads x once and multiplies longest between two waits. In fp16
    # two programs share a multiprocessor: weights of 64 channels and two stages take 112 KiB; BK concerns the general path only.
    return _config(128, 128, 32, 8, 3) if case.dtype == "fp32" else _config(64, 128, 64, 4, 2)


def space(case: Case) -> list[Config]:
    # Only tiles whose columns are all in one warp: others would exchange them through shared memory.
    if case.dtype != "fp32":
        tiles = [(64, 128, 4, (2,)), (64, 64, 4, (2, 3, 4)), (128, 128, 8, (2, 3, 4))]
        return [_config(bm, bn, 64, warps, stages) for bm, bn, warps, depths in tiles for stages in depths]
    return [
        _config(bm, 128, bk, warps, stages)
        for bm, warps in ((64, 4), (128, 8))
        for bk, depths in ((16, (3, 4, 5)), (32, (2, 3)))
        for stages in depths
    ]


KERNEL = Kernel(run=run, default=default, space=space)
