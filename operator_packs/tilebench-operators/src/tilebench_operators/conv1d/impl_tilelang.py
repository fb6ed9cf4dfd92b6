"""One-dimensional convolution in TileLang: an implicit GEMM that turns its input around on the way to registers.

Per tap: out[positions, Cout] += x[shifted positions, Cin] · weight_tap [Cout, Cin]ᵀ. The grid is bound by memory (192 FLOP per byte in
fp16), so that a launch which rewrites x channels-last first would double the traffic. Instead TMA brings x as it lies, channel
by channel, and the tensor cores take x from registers. A thread has four neighbouring positions, which are four rows of
two products: a tap moves rows from register to register, and only the outer ones come from another lane. The
same order of rows makes its results four neighbouring positions of a channel, which leave by 8 bytes (fp32: 16 bytes) at once.

All weights stay in shared memory: a block goes through many tiles. Two warp groups multiply. Each has tiles, stages and a loading
warp of its own, so that one may have the tensor cores while the other stores. Before their first tile they pack the
weights, while x is under way. Other taps, odd extents, strides and groups (edge cases only) take `_tilelang_conv`.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors

from tilebench_operators._tilelang_conv import convolution, rounded, unsupported
from tilebench_operators._tilelang_wgmma import has_wgmma

TAPS = 3
BM = 128  # output channels of a tile
BN = 128  # positions of a tile: four for every four lanes of a warp group, which share them channel by channel
HALO = 4  # words of 32 bits beside a tile's positions: TMA wants whole 16 bytes
GROUPS = 2  # warp groups that multiply
WORKERS, LOADERS = 128 * GROUPS, 128  # threads that multiply, threads that load: a warp for each group, and idle ones
WORKER_REGISTERS, LOADER_REGISTERS = 240, 24
QUADS = 5  # registers of a product come by four, for rows and their neighbours: two products and three taps share five quads
ROOM = 231_424  # bytes of shared memory for weights and stages, beside barriers, on sm_90
KIND = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "tf32"}


def stage_channels(dtype: torch.dtype) -> int:
    """Channels of a stage. The weights of fp32 leave little room, so that its stages are small."""
    return 8 if dtype == torch.float32 else 32


def stages_that_fit(dtype: torch.dtype, channels: int) -> int:
    """How many stages for each warp group shared memory holds beside the weights of `channels` input channels."""
    weights = channels * dtype.itemsize * TAPS * BM
    pitch = BN * dtype.itemsize + 2 * HALO * 4
    return (ROOM - weights) // (GROUPS * stage_channels(dtype) * pitch)


@tilelang.jit(
    pass_configs={
        # Roles and their barriers are written out here. The compiler would add barriers for all threads.
        tilelang.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True,
        tilelang.PassConfigKey.TL_DISABLE_THREAD_STORAGE_SYNC: True,
        tilelang.PassConfigKey.TL_DISABLE_SHARED_MEMORY_REUSE: True,
        tilelang.PassConfigKey.TL_DISABLE_SAFE_MEMORY_ACCESS: True,
    }
)
def tile_kernel(dtype: torch.dtype, CHANNELS: int, stages: int):
    """A warp group makes every `GROUPS · programs`-th tile of BN positions of BM channels of out [B, Cout, L].

    x [B, CHANNELS, L] and out are words of 32 bits, so that a thread can pass two fp16 on at once; weight [Cout, CHANNELS · TAPS].
    """
    B, Cout, WORDS = T.dynamic("B, Cout, WORDS")
    VEC = 16 // dtype.itemsize
    PACK = 4 // dtype.itemsize  # values of a word
    OWN = 4 // PACK  # words of a thread's four positions
    BK = stage_channels(dtype)
    STEPS = CHANNELS // BK  # stages of a tile
    SLICE = 2 * VEC  # channels of a product
    SLICES = BK // SLICE
    TILE = BN // PACK  # words
    PITCH = TILE + 2 * HALO  # 8 more than a multiple of 32: the channels that a warp reads lie in different banks
    tf32 = dtype == torch.float32
    shape = f"m64n{BM}k{SLICE}"
    kind = KIND[dtype]

    @T.macro
    def pack_weights(weight, w_tile, o):
        """Weights of BM channels from o on, in the order of w_tile: 16 bytes of input channels, taps, output channels.

        The order of input channels is that of `load_operand`.
        """
        thread = T.get_thread_binding()
        taps = T.alloc_local((TAPS * VEC,), dtype)
        channels = T.alloc_local((VEC,), dtype)
        for i in T.unroll(CHANNELS // VEC * BM // WORKERS):
            group = i * (WORKERS // BM) + thread // BM
            for q in T.unroll(TAPS):
                for v in T.vectorized(VEC):
                    taps[q * VEC + v] = weight[o + thread % BM, (group * TAPS + q) * VEC + v]
            for t in T.unroll(TAPS):
                for j in T.unroll(VEC):
                    channels[j] = rounded(taps[(j // PACK + j % PACK * 4) * TAPS + t], tf32)
                for j in T.vectorized(VEC):
                    w_tile[group * TAPS + t, thread % BM, j] = channels[j]

    @T.macro
    def load_operand(x_tile, operand, slot, channel, half, zero):
        """Of a product's channels from `channel` on: the quads of rows of a thread, to one half of `operand`.

        A register of fp16 has two channels that lie four apart. Most rows are in two quads. The compiler would move them from the one
        to the other between products, which then wait for each other: `zero` is nothing, but makes different values of them.
        """
        lane = T.get_thread_binding() % 32
        first = HALO + T.get_thread_binding() // 32 % 4 * (8 * OWN)  # the warp's
        own = first + lane // 4 * OWN
        beside = T.if_then_else(lane < 16, first - 1, first + 8 * OWN)
        side = T.if_then_else(lane < 16, T.uint32(0x7632), T.uint32(0x5410))
        raw = T.alloc_local((2 * PACK, OWN), T.uint32)
        edge = T.alloc_local((2 * PACK,), T.uint32)
        rows = T.alloc_local((2, 6), T.uint32)  # position by position, from the one before the thread's own on
        for m in T.unroll(2 * PACK):
            for w in T.vectorized(OWN):
                raw[m, w] = x_tile[slot, channel + lane % 4 + 4 * m, own + w]
            edge[m] = x_tile[slot, channel + lane % 4 + 4 * m, beside]
        for r in T.unroll(2):
            if tf32:
                for i in T.unroll(4):
                    rows[r, 1 + i] = (raw[r, i] + T.uint32(0x1000)) & T.uint32(0xFFFFE000)
                edge[r] = (edge[r] + T.uint32(0x1000)) & T.uint32(0xFFFFE000)
            else:
                for i in T.unroll(2):
                    for p in T.unroll(2):
                        rows[r, 1 + 2 * i + p] = T.call_extern(
                            "uint32", "__byte_perm", raw[2 * r, i], raw[2 * r + 1, i],
                            T.uint32(0x7632) if p == 1 else T.uint32(0x5410),
                        )  # fmt: skip
                edge[r] = T.call_extern("uint32", "__byte_perm", edge[2 * r], edge[2 * r + 1], side)
            rows[r, 0] = T.shfl_up(rows[r, 4], 4)
            rows[r, 5] = T.shfl_down(rows[r, 1], 4)
            if lane < 4:
                rows[r, 0] = edge[r]
            if lane >= 28:
                rows[r, 5] = edge[r]
        for q in T.unroll(QUADS):
            for r in T.unroll(4):
                if r % 2 == 0:
                    operand[(half * QUADS + q) * 4 + r] = rows[r // 2, q]
                else:
                    operand[(half * QUADS + q) * 4 + r] = rows[r // 2, q + 1] ^ zero

    @T.macro
    def multiply(operand, w_desc, total, index, half):
        """Start total [2, 64, BM] += the products of the tile's index-th slice of channels. Offsets count 16 bytes."""
        T.warpgroup_fence_operand(operand, offset=half * QUADS * 4, num_regs=QUADS * 4)
        T.warpgroup_arrive()
        for t in T.unroll(TAPS):
            for j in T.unroll(2):
                T.ptx_wgmma_rs(
                    T.float32, shape, True, kind, kind, "fp32",
                    operand.data,
                    (half * QUADS + 2 * j + t) * 4,
                    w_desc.data,
                    (2 * index * TAPS + t) * BM,
                    total.data, j * (BM // 2),
                    T.if_then_else(index == 0 and t == 0, 0, 1),  # a tile's first product doesn't add
                    1, 1,
                )  # fmt: skip
        T.warpgroup_commit_batch()

    @T.macro
    def store_tile(total, out, b, o, word):
        """total to out from the word on: rows of a thread are neighbours of a channel, and eight lanes store them side by side."""
        lane = T.get_thread_binding() % 32
        words = T.alloc_local((OWN,), T.uint32)
        column = word + (T.get_thread_binding() // 32 % 4 * 8 + lane // 4) * OWN
        for n in T.unroll(BM // 8):
            for e in T.unroll(2):
                channel = o + n * 8 + lane % 4 * 2 + e
                if tf32:
                    for i in T.unroll(4):
                        words[i] = T.reinterpret(total[i // 2 * (BM // 2) + n * 4 + i % 2 * 2 + e], T.uint32)
                    T.stg128(out[b, channel, column], words[T.Ramp(0, 1, 4)], pred=column < WORDS)
                else:
                    for i in T.unroll(2):
                        low = T.reinterpret(T.cast(total[i * (BM // 2) + n * 4 + e], dtype), T.uint16)
                        high = T.reinterpret(T.cast(total[i * (BM // 2) + n * 4 + 2 + e], dtype), T.uint16)
                        words[i] = T.cast(low, T.uint32) | (T.cast(high, T.uint32) << T.uint32(16))
                    T.stg64(out[b, channel, column], words[T.Ramp(0, 1, 2)], pred=column < WORDS)

    @T.prim_func
    def convolve_tiles(
        x: T.Tensor((B, CHANNELS, WORDS), T.uint32),
        weight: T.Tensor((Cout, CHANNELS * TAPS), dtype),
        out: T.Tensor((B, Cout, WORDS), T.uint32),
        programs: T.int32,
    ):
        with T.Kernel(programs, Cout // BM, B, threads=WORKERS + LOADERS) as (program, row, b):
            T.assume(programs > 0)
            T.assume(WORDS % 4 == 0)
            w_tile = T.alloc_shared((CHANNELS // VEC * TAPS, BM, VEC), dtype)
            x_tile = T.alloc_shared((GROUPS * stages, BK, PITCH), T.uint32)
            full = T.alloc_barrier([1] * (GROUPS * stages))
            free = T.alloc_barrier([4] * (GROUPS * stages))
            thread = T.get_thread_binding()
            group = T.if_then_else(thread < WORKERS, thread // 128, (thread - WORKERS) // 32)
            first = program * GROUPS + group
            turns = T.max(T.ceildiv(T.ceildiv(WORDS, TILE) - first, programs * GROUPS), 0)

            if thread >= WORKERS:
                T.dec_max_nreg(LOADER_REGISTERS)
                for turn in T.serial(T.if_then_else(group < GROUPS, turns, 0)):
                    left = (first + turn * programs * GROUPS) * TILE - HALO
                    for c in T.serial(STEPS):
                        step = turn * STEPS + c
                        slot = group * stages + step % stages
                        T.mbarrier_wait_parity(free[slot], step // stages % 2 ^ 1)
                        T.tma_copy(
                            x[b, c * BK : c * BK + BK, left : left + PITCH],
                            x_tile[slot, 0:BK, 0:PITCH],
                            barrier=full[slot],
                            leader_scope_threads=32,
                        )
                        if T.shuffle_elect(32):
                            T.barrier_arrive(full[slot])
            else:
                T.inc_max_nreg(WORKER_REGISTERS)
                total = T.alloc_local((BM,), T.float32)
                operand = T.alloc_local((2 * QUADS * 4,), T.uint32)
                w_desc = T.alloc_wgmma_desc()
                # No swizzle; 8 rows are 8 · 16 bytes, and the other 16 bytes of a row lie all taps further on.
                T.initialize_wgmma_descriptor(w_desc, w_tile.access_ptr("r"), 0, TAPS * BM, 8)
                zero = T.alloc_var(T.uint32)
                zero = T.cast(programs >> 20, T.uint32)  # there are fewer multiprocessors, as only the host knows
                pack_weights(weight, w_tile, row * BM)
                T.fence_proxy_async()
                T.sync_threads(1, WORKERS)
                for turn in T.serial(turns):
                    T.warpgroup_fence_operand(total, num_regs=BM)
                    for c in T.unroll(STEPS):
                        step = turn * STEPS + c
                        slot = group * stages + step % stages
                        T.mbarrier_wait_parity(full[slot], step // stages % 2)
                        for k in T.unroll(SLICES):
                            # The products before are under way; those before them have read this half.
                            load_operand(x_tile, operand, slot, k * SLICE, (c * SLICES + k) % 2, zero)
                            if k == SLICES - 1:
                                T.sync_warp()
                                if thread % 32 == 0:
                                    T.barrier_arrive(free[slot])
                            multiply(operand, w_desc, total, c * SLICES + k, (c * SLICES + k) % 2)
                            T.warpgroup_wait(1)
                    T.warpgroup_wait(0)
                    T.warpgroup_fence_operand(total, num_regs=BM)
                    store_tile(total, out, b, row * BM, (first + turn * programs * GROUPS) * TILE)

    return convolve_tiles


def run(
    input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int, *, stages: int
) -> torch.Tensor:
    """Return out [batch, Cout, L_out] of input [batch, Cin, L] and weight [Cout, Cin / groups, taps]."""
    batch, in_channels, length = input.shape
    out_channels = weight.shape[0]
    align = 16 // input.element_size()
    whole = length % align == 0 and in_channels % stage_channels(input.dtype) == 0 and out_channels % BM == 0
    whole = whole and input.data_ptr() % 16 == 0 and weight.data_ptr() % 16 == 0
    plain = (weight.shape[2], stride, padding, groups) == (TAPS, 1, 1, 1)
    stages = min(stages, stages_that_fit(input.dtype, in_channels))
    if not plain or not whole or stages < 2 or not has_wgmma():
        return convolution(
            input, weight, stride, padding, groups, BM=128, BH=1, BW=128, BK=8 * align, stages=4, threads=256
        )
    out = torch.empty((batch, out_channels, length), dtype=input.dtype, device=input.device)
    programs = min(-(-length // (GROUPS * BN)), max(1, multiprocessors(input.device) // (out_channels // BM * batch)))
    tile_kernel(input.dtype, in_channels, stages)(
        input.view(torch.uint32), weight.view(out_channels, -1), out.view(torch.uint32), programs
    )
    return out


def default(case: Case) -> Config:
    return {"stages": 4 if case.dtype == "fp32" else 7}  # as many as fit beside the weights of 128 channels


def space(case: Case) -> list[Config]:
    return [{"stages": stages} for stages in range(2, default(case)["stages"] + 1)]


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
