"""One-dimensional convolution in TileLang: an implicit GEMM that turns its input around on the way to shared memory.

Per tap: out[Cout, positions] += weight_tap [Cout, Cin] · x[shifted positions, Cin]ᵀ. The grid is bound by memory (192 FLOP per byte in
fp16), so that a launch which rewrites x channels-last first would double the traffic. Instead threads load blocks of 8 × 8
(fp32: 4 × 4) values by 16 bytes, turn them in registers and store them by 16 bytes to a stage in shared memory: 16 bytes of
channels of all positions one after the other, then the next 16 bytes of channels. That is the tensor core's layout without
swizzle, in which a tap's operand, the stage some positions further down, is just another address. `T.gemm` knows
swizzled tiles only; therefore the instructions are written out.

One warp group loads and turns: its registers hold 64 KiB on their way from memory while the others work. Two warp groups multiply,
64 output channels each; they don't wait for each other, so that one has the tensor cores while the other stores. All weights
stay in shared memory: a block goes through many tiles. Before its first tile the two warp groups pack them, while x is
under way. Other taps, odd extents, strides and groups (edge cases only), and GPUs without WGMMA take `_tilelang_conv`.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors

from tilebench_operators._tilelang_conv import convolution, rounded, unsupported
from tilebench_operators._tilelang_wgmma import has_wgmma

TAPS = 3
BM = 128  # output channels of a tile: 64 for each warp group
BN = 256  # positions of a tile
PITCH = (
    BN + 3
)  # from a group to the next in a stage: at least two positions more than BN, and odd, against bank conflicts
WORKERS, LOADERS = 256, 128  # threads that multiply, threads that load
# Registers of each in fp16, where a loader needs more than the 168 that all have at the start. A worker's sums and a loader's
# values on their way are 128.
WORKER_REGISTERS, LOADER_REGISTERS = 160, 184
UNIT = 512  # bytes that a loader has under way
ROOM = 230_400  # bytes of shared memory for weights and stages, beside barriers, on sm_90
KIND = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "tf32"}


@T.macro
def exchange(word, low, high, mask: int):
    """Of the lanes whose numbers differ in bit `mask`, the upper one gets the lower's `high` for its own `low`."""
    upper = T.get_thread_binding() & mask
    other = T.shfl_xor(T.if_then_else(upper != 0, word[low], word[high]), mask)
    if upper != 0:
        word[low] = other
    else:
        word[high] = other


def stage_groups(dtype: torch.dtype) -> int:
    """Groups of 16 bytes of channels in a stage. The weights of fp32 leave room for two stages of half the size."""
    return 4 if dtype == torch.float32 else 8


def stages_that_fit(dtype: torch.dtype, channels: int) -> int:
    """How many stages shared memory holds beside the weights of `channels` input channels."""
    weights = channels * dtype.itemsize * TAPS * BM
    return (ROOM - weights) // (stage_groups(dtype) * PITCH * 16)


@tilelang.jit(
    pass_configs={
        # Warp groups and their barriers are written out here. The compiler would add barriers for all threads.
        tilelang.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True,
        tilelang.PassConfigKey.TL_DISABLE_THREAD_STORAGE_SYNC: True,
        tilelang.PassConfigKey.TL_DISABLE_SHARED_MEMORY_REUSE: True,
    }
)
def tile_kernel(dtype: torch.dtype, CHANNELS: int, stages: int):
    """A block makes every `programs`-th tile of BN positions of BM channels of out [B, Cout, L].

    x [B, CHANNELS, L] and out are words of 32 bits, so that a thread can pass two fp16 on at once; weight [Cout, CHANNELS · TAPS].
    """
    B, Cout, WORDS = T.dynamic("B, Cout, WORDS")
    VEC = 16 // dtype.itemsize  # a block that a thread turns has VEC · VEC values
    GROUPS = stage_groups(dtype)
    BK = GROUPS * VEC  # channels of a stage
    STEPS = CHANNELS // BK  # stages of a tile
    PACK = 4 // dtype.itemsize  # values of a word
    BLOCKS = UNIT // (VEC * 16)  # per loader
    UNITS = GROUPS * 16 * BN // (32 * UNIT)  # warps that load a stage
    SPAN = LOADERS // 32 // UNITS  # stages from one that a warp loads to its next
    # A warp comes back a span of stages later and skips rounds of fewer stages. A barrier tells only two rounds apart, so that
    # the stages' uses go round a ring of barriers as long as a span.
    RING = -(-SPAN // stages) * stages
    EDGES = 2 * BK // (32 * UNITS)  # per loader: values beside the tile
    tf32 = dtype == torch.float32
    shape = f"m64n{BN}k{2 * VEC}"
    kind = KIND[dtype]

    @T.macro
    def pack_weights(weight, w_tile, o):
        """Weights of BM channels from o on, in the order of w_tile: groups, taps, output channels, VEC input channels."""
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
                    channels[j] = rounded(taps[j * TAPS + t], tf32)
                for j in T.vectorized(VEC):
                    w_tile[group * TAPS + t, thread % BM, j] = channels[j]

    @T.macro
    def load_unit(x, raw, edges, b, c, word):
        """Of channels from c on and positions from the word on what this thread turns, and some of the values on both sides.

        Explicit instructions: others would be moved before the fence of `store_unit`, which may wait for them.
        """
        lane = T.get_thread_binding() % 32
        part = T.get_thread_binding() // 32 % UNITS
        first = word + part * (BN // UNITS // PACK) + lane // GROUPS * 4
        for k in T.unroll(BLOCKS):
            for j in T.unroll(VEC):
                raw[k, j, T.Ramp(0, 1, 4)] = T.ldg128(
                    x[b, c + lane % GROUPS * VEC + j, first + k * (32 // GROUPS * 4)],
                    pred=first + k * (32 // GROUPS * 4) < WORDS,
                )
        for e in T.unroll(EDGES):
            index = (part * EDGES + e) * 32 + lane
            outside = word - 1 + index // BK * (BN // PACK + 1)
            edges[e] = T.ldg32(x[b, c + index % BK, outside], pred=outside >= 0 and outside < WORDS)

    @T.macro
    def store_unit(x_tile, raw, edges, slot):
        lane = T.get_thread_binding() % 32
        part = T.get_thread_binding() // 32 % UNITS
        words = T.alloc_local((4,), T.uint32)
        for k in T.unroll(BLOCKS):
            row = part * (BN // UNITS) + (lane // GROUPS + k * (32 // GROUPS)) * VEC + 1
            for p in T.unroll(VEC):
                for w in T.unroll(4):
                    if tf32:
                        words[w] = (raw[k, w, p] + T.uint32(0x1000)) & T.uint32(0xFFFFE000)
                    elif p % 2 == 0:
                        words[w] = (raw[k, 2 * w, p // 2] & T.uint32(0xFFFF)) | (
                            raw[k, 2 * w + 1, p // 2] << T.uint32(16)
                        )
                    else:
                        words[w] = (raw[k, 2 * w, p // 2] >> T.uint32(16)) | (
                            raw[k, 2 * w + 1, p // 2] & T.uint32(0xFFFF0000)
                        )
                T.sts128(x_tile[slot, lane % GROUPS, row + p, 0], words[T.Ramp(0, 1, 4)])
        for e in T.unroll(EDGES):
            index = (part * EDGES + e) * 32 + lane
            row = index // BK * (BN + 1)
            if tf32:
                x_tile[slot, index % BK // VEC, row, index % VEC] = rounded(T.reinterpret(edges[e], T.float32), tf32)
            else:  # the last value of the word on the left, the first one of that on the right
                half = T.cast(edges[e] >> T.if_then_else(index < BK, T.uint32(16), T.uint32(0)), T.uint16)
                x_tile[slot, index % BK // VEC, row, index % VEC] = T.reinterpret(half, dtype)
        T.fence_proxy_async()

    @T.macro
    def multiply(w_desc, x_desc, total, step, slot):
        """Start total [64, BN] += the products of a stage, for each warp group's 64 channels. Offsets count 16 bytes."""
        T.warpgroup_fence_operand(total, num_regs=BN // 2)
        T.warpgroup_arrive()
        for t in T.unroll(TAPS):
            for k in T.unroll(GROUPS // 2):
                T.ptx_wgmma_ss(
                    T.float32, shape, True, True, kind, kind, "fp32",
                    w_desc.data,
                    ((step * GROUPS + 2 * k) * TAPS + t) * BM + T.get_thread_binding() // 128 * 64,
                    x_desc.data,
                    (slot * GROUPS + 2 * k) * PITCH + t,
                    total.data, 0,
                    T.if_then_else(step == 0 and t == 0 and k == 0, 0, 1),  # a tile's first product doesn't add
                    1, 1,
                )  # fmt: skip
        T.warpgroup_commit_batch()

    @T.macro
    def store_tile(total, out, b, o, word):
        """total to out from the word on. A thread has two neighbours of every 8 columns; four lanes make 16 bytes each of them."""
        lane = T.get_thread_binding() % 32
        words = T.alloc_local((4,), T.uint32)
        for h in T.unroll(2):
            channel = o + T.get_thread_binding() // 32 * 16 + h * 8 + lane // 4
            if tf32:
                for j in T.unroll(BN // 16):
                    for i in T.unroll(4):
                        words[i] = T.reinterpret(total[(2 * j + i // 2) * 4 + 2 * h + i % 2], T.uint32)
                    exchange(words, 0, 2, 1)
                    exchange(words, 1, 3, 1)
                    column = word + (2 * j + lane % 2) * 8 + lane % 4 // 2 * 4
                    T.stg128(out[b, channel, column], words[T.Ramp(0, 1, 4)], pred=column < WORDS)
            else:
                for j in T.unroll(BN // 32):
                    for i in T.unroll(4):
                        low = T.reinterpret(T.cast(total[(4 * j + i) * 4 + 2 * h], dtype), T.uint16)
                        high = T.reinterpret(T.cast(total[(4 * j + i) * 4 + 2 * h + 1], dtype), T.uint16)
                        words[i] = T.cast(low, T.uint32) | (T.cast(high, T.uint32) << T.uint32(16))
                    exchange(words, 0, 1, 1)
                    exchange(words, 2, 3, 1)
                    exchange(words, 0, 2, 2)
                    exchange(words, 1, 3, 2)
                    column = word + (4 * j + lane % 4) * 4
                    T.stg128(out[b, channel, column], words[T.Ramp(0, 1, 4)], pred=column < WORDS)

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
            x_tile = T.alloc_shared((stages, GROUPS, PITCH, VEC), dtype)
            full = T.alloc_barrier([32 * UNITS] * stages)
            free = T.alloc_barrier([WORKERS] * RING)
            turns = T.ceildiv(T.ceildiv(WORDS, BN // PACK) - program, programs)

            with T.ws(2):
                if not tf32:
                    T.inc_max_nreg(LOADER_REGISTERS)
                raw = T.alloc_local((BLOCKS, VEC, 4), T.uint32)
                edges = T.alloc_local((EDGES,), T.uint32)
                stage = (T.get_thread_binding() - WORKERS) // 32 // UNITS
                load_unit(x, raw, edges, b, stage * BK, program * (BN // PACK))
                for i in T.serial(turns * (STEPS // SPAN)):
                    step = i * SPAN + stage
                    before = step + RING - stages  # the step that used the stage, a round of the ring later
                    T.mbarrier_wait_parity(free[before % RING], before // RING % 2 ^ 1)
                    store_unit(x_tile, raw, edges, step % stages)
                    T.mbarrier_arrive(full[step % stages])
                    # The last time this lies beyond the end, where nothing is loaded.
                    tile = program + (step + SPAN) // STEPS * programs
                    load_unit(x, raw, edges, b, (step + SPAN) % STEPS * BK, tile * (BN // PACK))

            with T.ws(0, 1):
                if not tf32:
                    T.dec_max_nreg(WORKER_REGISTERS)
                total = T.alloc_local((BN // 2,), T.float32)
                x_desc = T.alloc_wgmma_desc()
                w_desc = T.alloc_wgmma_desc()
                # No swizzle; 8 rows are 8 · 16 bytes, and the other 16 bytes of a row lie a group further on.
                T.initialize_wgmma_descriptor(x_desc, x_tile.access_ptr("r"), 0, PITCH, 8)
                T.initialize_wgmma_descriptor(w_desc, w_tile.access_ptr("r"), 0, TAPS * BM, 8)
                pack_weights(weight, w_tile, row * BM)
                T.fence_proxy_async()
                T.sync_threads(1, WORKERS)
                for turn in T.serial(turns):
                    for c in T.unroll(STEPS):
                        step = turn * STEPS + c
                        T.mbarrier_wait_parity(full[step % stages], step // stages % 2)
                        multiply(w_desc, x_desc, total, c, step % stages)
                        if c > 0:  # what the stage before was read for is done
                            T.warpgroup_wait(1)
                            T.mbarrier_arrive(free[(step - 1) % RING])
                    T.warpgroup_wait(0)
                    T.warpgroup_fence_operand(total, num_regs=BN // 2)
                    T.mbarrier_arrive(free[(turn * STEPS + STEPS - 1) % RING])
                    store_tile(total, out, b, row * BM, (program + turn * programs) * (BN // PACK))

    return convolve_tiles


def run(
    input: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, groups: int, *, stages: int
) -> torch.Tensor:
    """Return out [batch, Cout, L_out] of input [batch, Cin, L] and weight [Cout, Cin / groups, taps]."""
    batch, in_channels, length = input.shape
    out_channels = weight.shape[0]
    align = 16 // input.element_size()
    # Loaders go through whole spans of stages: 256 bytes of channels.
    whole = length % align == 0 and in_channels % (16 * align) == 0 and out_channels % BM == 0
    whole = whole and input.data_ptr() % 16 == 0 and weight.data_ptr() % 16 == 0
    plain = (weight.shape[2], stride, padding, groups) == (TAPS, 1, 1, 1)
    stages = min(stages, stages_that_fit(input.dtype, in_channels))
    if not plain or not whole or stages < 2 or not has_wgmma():
        return convolution(
            input, weight, stride, padding, groups, BM=128, BH=1, BW=128, BK=8 * align, stages=4, threads=256
        )
    out = torch.empty((batch, out_channels, length), dtype=input.dtype, device=input.device)
    programs = min(-(-length // BN), max(1, multiprocessors(input.device) // (out_channels // BM * batch)))
    tile_kernel(input.dtype, in_channels, stages)(
        input.view(torch.uint32), weight.view(out_channels, -1), out.view(torch.uint32), programs
    )
    return out


def default(case: Case) -> Config:
    return {"stages": 2 if case.dtype == "fp32" else 3}  # as many as fit beside the weights of 128 channels


def space(case: Case) -> list[Config]:
    return [{"stages": stages} for stages in range(2, default(case)["stages"] + 1)]


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
