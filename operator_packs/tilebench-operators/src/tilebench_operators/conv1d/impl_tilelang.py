"""One-dimensional convolution in TileLang: an implicit GEMM that turns its input around on the way to shared memory.

Per tap: out[Cout, positions] += weight_tap [Cout, Cin] · x[shifted positions, Cin]ᵀ. The grid is bound by memory (192 FLOP per byte in
fp16), so that a launch which rewrites x channels-last first would double the traffic. Instead threads load blocks of 8 × 8
(fp32: 4 × 4) values by 16 bytes, turn them in registers and store them by 16 bytes to a tile in shared memory: 16 bytes of
channels of all positions one after the other, then the next 16 bytes of channels. That is the tensor core's layout without
swizzle, in which a tap's operand, the tile some positions further down, is just another address. `T.gemm` knows
swizzled tiles only; therefore the instructions are written out.

The tensor cores work on one tile while the threads fill the next and load the one after it. A first, tiny launch packs the
weights in the order of shared memory. Other taps, odd extents, strides and groups (edge cases only) take `_tilelang_conv`.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors

from tilebench_operators._tilelang_conv import convolution, rounded, unsupported

TAPS = 3
BM = 128  # output channels of a tile: 64 for each warp group
THREADS = 256
GROUPS = 8  # of 16 bytes: the input channels of a step
KIND = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "tf32"}


@tilelang.jit
def pack_kernel(dtype: torch.dtype):
    """packed [Cout / BM, Cin / BK, GROUPS · TAPS · BM · VEC] of weight [Cout, Cin, TAPS]; a block packs 16 bytes of channels."""
    Cin, Cout, CHUNKS, TILES = T.dynamic("Cin, Cout, CHUNKS, TILES")
    VEC = 16 // dtype.itemsize
    tf32 = dtype == torch.float32

    @T.prim_func
    def pack_weight(
        weight: T.Tensor((Cout, Cin, TAPS), dtype),
        packed: T.Tensor((TILES, CHUNKS, GROUPS * TAPS * BM * VEC), dtype),
    ):
        with T.Kernel(GROUPS, CHUNKS, TILES, threads=THREADS) as (group, chunk, tile):
            for t, m, v in T.Parallel(TAPS, BM, VEC):
                packed[tile, chunk, ((group * TAPS + t) * BM + m) * VEC + v] = rounded(
                    weight[tile * BM + m, (chunk * GROUPS + group) * VEC + v, t], tf32
                )

    return pack_weight


@T.macro
def exchange(word, low, high, mask: int):
    """Of the lanes whose numbers differ in bit `mask`, the upper one gets the lower's `high` for its own `low`."""
    upper = T.get_thread_binding() & mask
    other = T.shfl_xor(T.if_then_else(upper != 0, word[low], word[high]), mask)
    if upper != 0:
        word[low] = other
    else:
        word[high] = other


@tilelang.jit
def tile_kernel(dtype: torch.dtype, CHUNKS: int, BN: int, resident: bool):
    """A block makes every `programs`-th tile of BN positions of BM channels of out [B, Cout, L], in CHUNKS steps of BK channels.

    x [B, CHUNKS · BK, L]; packed as `pack_kernel` leaves it; out as words of 32 bits. Resident: all weights stay in shared
    memory; otherwise a step's weights come with the step.
    """
    B, L, Cout, WORDS, TILES = T.dynamic("B, L, Cout, WORDS, TILES")
    VEC = 16 // dtype.itemsize  # a block that a thread turns has VEC · VEC values
    BK = GROUPS * VEC
    BLOCKS = BN // VEC * GROUPS // THREADS  # per thread
    PITCH = BN + 9  # at least two positions more than BN; one more than a multiple of 8, against bank conflicts
    WEIGHTS = GROUPS * TAPS * BM * VEC
    tf32 = dtype == torch.float32
    shape = f"m64n{BN}k{2 * VEC}"
    kind = KIND[dtype]

    @T.macro
    def load_blocks(x, raw, edge, b, c, start):
        """Of x the blocks that this thread turns, and one of the values on both sides of the tile."""
        thread = T.get_thread_binding()
        for k in T.unroll(BLOCKS):
            first = start + (thread // GROUPS + k * (THREADS // GROUPS)) * VEC
            for j in T.unroll(VEC):
                for v in T.vectorized(VEC):
                    raw[k, j, v] = T.cast(0, dtype)
                if first < L:
                    for v in T.vectorized(VEC):
                        raw[k, j, v] = x[b, c + thread % GROUPS * VEC + j, first + v]
        edge[0] = T.cast(0, dtype)
        if thread < 2 * BK:
            outside = start - 1 + thread // BK * (BN + 1)
            if outside >= 0 and outside < L:
                edge[0] = x[b, c + thread % BK, outside]

    @T.macro
    def store_blocks(x_tile, raw, edge, stage):
        thread = T.get_thread_binding()
        channels = T.alloc_local((VEC,), dtype)
        for k in T.unroll(BLOCKS):
            row = (thread // GROUPS + k * (THREADS // GROUPS)) * VEC + 1
            for p in T.unroll(VEC):
                for j in T.unroll(VEC):
                    channels[j] = rounded(raw[k, j, p], tf32)
                for j in T.vectorized(VEC):
                    x_tile[stage, thread % GROUPS, row + p, j] = channels[j]
        if thread < 2 * BK:
            x_tile[stage, thread % BK // VEC, thread // BK * (BN + 1), thread % VEC] = rounded(edge[0], tf32)

    @T.macro
    def multiply(w_desc, x_desc, total, w_stage, x_stage, first):
        """Start total [64, BN] += the products of a step, for each warp group's 64 channels. Offsets count 16 bytes."""
        T.warpgroup_fence_operand(total, num_regs=BN // 2)
        T.warpgroup_arrive()
        for t in T.unroll(TAPS):
            for k in T.unroll(GROUPS // 2):
                T.ptx_wgmma_ss(
                    T.float32, shape, True, True, kind, kind, "fp32",
                    w_desc.data,
                    (w_stage * GROUPS + 2 * k) * (TAPS * BM) + t * BM + T.get_thread_binding() // 128 * 64,
                    x_desc.data,
                    (x_stage * GROUPS + 2 * k) * PITCH + t,
                    total.data, 0,
                    T.if_then_else(first, 0, 1) if t == 0 and k == 0 else 1,
                    1, 1,
                )  # fmt: skip
        T.warpgroup_commit_batch()

    @T.macro
    def store_tile(total, out, b, o, start):
        """total to out. A thread has two neighbours of every 8 columns; four lanes exchange them for 16 bytes each."""
        lane = T.get_thread_binding() % 32
        word = T.alloc_local((4,), T.uint32)
        for h in T.unroll(2):
            channel = o + T.get_thread_binding() // 32 * 16 + h * 8 + lane // 4
            if tf32:
                for j in T.unroll(BN // 16):
                    for i in T.unroll(4):
                        word[i] = T.reinterpret(total[(2 * j + i // 2) * 4 + 2 * h + i % 2], T.uint32)
                    exchange(word, 0, 2, 1)
                    exchange(word, 1, 3, 1)
                    column = start + (2 * j + lane % 2) * 8 + lane % 4 // 2 * 4
                    if column < L:
                        for i in T.vectorized(4):
                            out[b, channel, column + i] = word[i]
            else:
                for j in T.unroll(BN // 32):
                    for i in T.unroll(4):
                        low = T.reinterpret(T.cast(total[(4 * j + i) * 4 + 2 * h], dtype), T.uint16)
                        high = T.reinterpret(T.cast(total[(4 * j + i) * 4 + 2 * h + 1], dtype), T.uint16)
                        word[i] = T.cast(low, T.uint32) | (T.cast(high, T.uint32) << T.uint32(16))
                    exchange(word, 0, 1, 1)
                    exchange(word, 2, 3, 1)
                    exchange(word, 0, 2, 2)
                    exchange(word, 1, 3, 2)
                    column = start + (4 * j + lane % 4) * 8
                    if column < L:
                        for i in T.vectorized(4):
                            out[b, channel, column // 2 + i] = word[i]

    @T.prim_func
    def convolve_tiles(
        x: T.Tensor((B, CHUNKS * BK, L), dtype),
        packed: T.Tensor((TILES, CHUNKS, WEIGHTS), dtype),
        out: T.Tensor((B, Cout, WORDS), T.uint32),
        programs: T.int32,
    ):
        with T.Kernel(programs, TILES, B, threads=THREADS) as (program, row, b):
            T.assume(programs > 0)
            T.assume(L % VEC == 0)
            T.assume(WORDS % 4 == 0)
            x_tile = T.alloc_shared((2, GROUPS, PITCH, VEC), dtype)
            w_tile = T.alloc_shared((CHUNKS if resident else 2, WEIGHTS), dtype)
            raw = T.alloc_local((BLOCKS, VEC, VEC), dtype)
            edge = T.alloc_local((1,), dtype)
            total = T.alloc_local((BN // 2,), T.float32)
            x_desc = T.alloc_wgmma_desc()
            w_desc = T.alloc_wgmma_desc()
            # No swizzle; 8 rows are 8 · 16 bytes, and the other 16 bytes of a row lie a group further on.
            T.initialize_wgmma_descriptor(x_desc, x_tile.access_ptr("r"), 0, PITCH, 8)
            T.initialize_wgmma_descriptor(w_desc, w_tile.access_ptr("r"), 0, TAPS * BM, 8)
            steps = T.ceildiv(T.ceildiv(L, BN) - program, programs) * CHUNKS
            for chunk in T.unroll(CHUNKS if resident else 1):
                T.async_copy(packed[row, chunk, 0:WEIGHTS], w_tile[chunk, 0:WEIGHTS])
            load_blocks(x, raw, edge, b, 0, program * BN)
            store_blocks(x_tile, raw, edge, 0)
            if steps > 1:
                load_blocks(x, raw, edge, b, 1 % CHUNKS * BK, (program + 1 // CHUNKS * programs) * BN)
            T.ptx_wait_group(0)
            for step in T.serial(steps):
                T.fence_proxy_async()
                T.sync_threads()
                multiply(w_desc, x_desc, total, step % CHUNKS if resident else step % 2, step % 2, step % CHUNKS == 0)
                if step + 1 < steps:
                    if not resident:
                        T.async_copy(packed[row, (step + 1) % CHUNKS, 0:WEIGHTS], w_tile[(step + 1) % 2, 0:WEIGHTS])
                    store_blocks(x_tile, raw, edge, (step + 1) % 2)
                if step + 2 < steps:
                    load_blocks(
                        x, raw, edge, b, (step + 2) % CHUNKS * BK, (program + (step + 2) // CHUNKS * programs) * BN
                    )
                T.warpgroup_wait(0)
                T.warpgroup_fence_operand(total, num_regs=BN // 2)
                if step % CHUNKS == CHUNKS - 1:
                    store_tile(total, out, b, row * BM, (program + step // CHUNKS * programs) * BN)
                T.ptx_wait_group(0)

    return convolve_tiles


def run(input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int, *, BN: int) -> torch.Tensor:
    """Return out [batch, Cout, L_out] of input [batch, Cin, L] and weight [Cout, Cin / groups, taps]."""
    batch, in_channels, length = input.shape
    out_channels = weight.shape[0]
    align = 16 // input.element_size()
    depth = GROUPS * align
    plain = (weight.shape[2], stride, padding, groups) == (TAPS, 1, 1, 1)
    if not plain or length % align or in_channels % depth or out_channels % BM:
        return convolution(
            input, weight, stride, padding, groups, BM=128, BH=1, BW=128, BK=depth, stages=4, threads=256
        )
    out = torch.empty((batch, out_channels, length), dtype=input.dtype, device=input.device)
    channel_tiles, chunks = out_channels // BM, in_channels // depth
    packed = torch.empty((channel_tiles, chunks, TAPS * BM * depth), dtype=input.dtype, device=input.device)
    pack_kernel(input.dtype)(weight, packed)
    programs = min(-(-length // BN), max(1, multiprocessors(input.device) // (channel_tiles * batch)))
    # Two steps' weights are 96 KiB. Results leave as 32-bit words, so that a thread can pass two fp16 on at once.
    tile_kernel(input.dtype, chunks, BN, chunks <= 2)(input, packed, out.view(torch.uint32), programs)
    return out


def default(case: Case) -> Config:
    return {"BN": 256}


def space(case: Case) -> list[Config]:
    # In fp16 half as many positions would leave threads without a block to turn.
    return [{"BN": 256}] if case.dtype == "fp16" else [{"BN": 256}, {"BN": 128}]


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
