"""Combining split-KV partial outputs in TileLang: a block owns a few columns of one head and all its splits.

The largest input has 2.6 MB, so latency decides: D is cut into chunks to have more blocks than the 16 heads, and up to
SPLITS splits are loaded at once, with no loop-carried chain, which covers the whole grid with SPLITS >= 320 in one
pass. Longer inputs continue with a running maximum.

Every thread owns four columns of some splits, with a maximum and sums of its own. They meet once, at the end: T.reduce_*
would synchronise the block for every column.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

LOG2_E = 1.4426950408889634
MOST_ROWS = 5  # splits that a thread loads at once, by default


@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})  # exponentials of one instruction
def combine_kernel(D: int, SPLITS: int, CHUNK: int, threads: int):
    """mid [B, H, splits, D], lse [B, H, splits], seqlen [B] int32, o [B, H, D], all others fp32; CHUNK columns per block.

    D is a constant: then a thread's splits lie at constant distances, and one address serves all of its loads.
    """
    B, H, splits = T.dynamic("B"), T.dynamic("H"), T.dynamic("splits")
    LANES = CHUNK // 4  # threads that share a split
    ROWS = threads // LANES  # splits that the block loads side by side
    PER_THREAD = SPLITS // ROWS
    WARPS = threads // 32
    HALVINGS = (32 // LANES).bit_length() - 1  # of the splits in a warp

    @T.prim_func
    def combine(
        mid: T.Tensor((B, H, splits, D), T.float32),
        lse: T.Tensor((B, H, splits), T.float32),
        seqlen: T.Tensor((B,), T.int32),
        o: T.Tensor((B, H, D), T.float32),
        block_seq: T.int32,
    ):
        with T.Kernel(T.ceildiv(D, CHUNK), H, B, threads=threads) as (chunk, head, batch):
            thread = T.get_thread_binding()
            column = chunk * CHUNK + thread % LANES * 4
            values = T.alloc_local((PER_THREAD, 4), T.float32)
            weights = T.alloc_local((PER_THREAD,), T.float32)
            sums = T.alloc_local((4,), T.float32)
            total = T.alloc_var(T.float32, init=0.0)
            maximum = T.alloc_var(T.float32, init=T.min_value(T.float32))  # finite: no -inf - -inf
            larger, shrink = T.alloc_var(T.float32), T.alloc_var(T.float32)
            length = T.alloc_var(T.int32)
            warp_maximum = T.alloc_shared((WARPS,), T.float32)
            warp_total = T.alloc_shared((WARPS,), T.float32)
            warp_sums = T.alloc_shared((WARPS, CHUNK), T.float32)

            length = seqlen[batch]
            for v in T.unroll(4):
                sums[v] = 0
            for part in T.serial(T.ceildiv(splits, SPLITS)):
                for p in T.unroll(PER_THREAD):
                    split = part * SPLITS + p * ROWS + thread // LANES
                    # Masked by the allocation, so that these loads need not wait for the sequence's length.
                    for v in T.vectorized(4):
                        values[p, v] = T.if_then_else(
                            split < splits and column + v < D, mid[batch, head, split, column + v], 0
                        )
                    weights[p] = T.if_then_else(split < splits, lse[batch, head, split] * LOG2_E, 0)
                larger = maximum
                for p in T.unroll(PER_THREAD):
                    split = part * SPLITS + p * ROWS + thread // LANES
                    # By the split's first token, without a division.
                    if split >= splits or split * block_seq >= length:
                        weights[p] = -T.infinity(T.float32)
                    larger = T.max(larger, weights[p])
                shrink = T.exp2(maximum - larger)
                maximum = larger
                total = total * shrink
                for v in T.unroll(4):
                    sums[v] = sums[v] * shrink
                for p in T.unroll(PER_THREAD):
                    weights[p] = T.exp2(weights[p] - maximum)
                    total = total + weights[p]
                    if weights[p] > 0:  # unused splits may hold anything, NaN too
                        for v in T.unroll(4):
                            sums[v] = sums[v] + weights[p] * values[p, v]

            # The threads of one warp that own the same columns are LANES, 2·LANES, ... apart.
            larger = maximum
            for h in T.unroll(HALVINGS):
                larger = T.max(larger, T.shfl_xor(larger, LANES << h))
            shrink = T.exp2(maximum - larger)
            total = total * shrink
            for v in T.unroll(4):
                sums[v] = sums[v] * shrink
            for h in T.unroll(HALVINGS):
                total = total + T.shfl_xor(total, LANES << h)
                for v in T.unroll(4):
                    sums[v] = sums[v] + T.shfl_xor(sums[v], LANES << h)
            if thread % 32 < LANES:
                for v in T.vectorized(4):
                    warp_sums[thread // 32, thread % 32 * 4 + v] = sums[v]
                if thread % 32 == 0:
                    warp_maximum[thread // 32] = larger
                    warp_total[thread // 32] = total
            T.sync_threads()
            if thread < CHUNK and chunk * CHUNK + thread < D:
                for w in T.unroll(WARPS):
                    larger = T.max(larger, warp_maximum[w])
                total = 0.0
                sums[0] = 0
                for w in T.unroll(WARPS):
                    shrink = T.exp2(warp_maximum[w] - larger)
                    total = total + warp_total[w] * shrink
                    sums[0] = sums[0] + warp_sums[w, thread] * shrink
                o[batch, head, chunk * CHUNK + thread] = sums[0] / total

    return combine


def run(
    mid_o: torch.Tensor, mid_lse: torch.Tensor, b_seqlen: torch.Tensor, block_seq: int, *, SPLITS: int, CHUNK: int,
    threads: int,
) -> torch.Tensor:  # fmt: skip
    """Return o [B, H, D]; mid_o [B, H, splits, D], mid_lse [B, H, splits], b_seqlen [B] int32."""
    B, H, _, D = mid_o.shape
    o = torch.empty([B, H, D], dtype=mid_o.dtype, device=mid_o.device)
    combine_kernel(D, SPLITS, CHUNK, threads)(mid_o, mid_lse, b_seqlen, o, block_seq)
    return o


def _config(case: Case, most: int, CHUNK: int, threads: int) -> Config:
    """SPLITS covers the case's splits, if it may: at most `most`, at least one per thread, all threads alike."""
    splits = -(-case["seq_len"] // case["block_seq"])
    rows = threads // (CHUNK // 4)
    return {"SPLITS": -(-min(most, splits) // rows) * rows, "CHUNK": CHUNK, "threads": threads}


def default(case: Case) -> Config:
    # Few splits: a line of 128 bytes of every row, or two, and small blocks, which start and meet sooner.
    splits = -(-case["seq_len"] // case["block_seq"])
    if splits <= 16:
        return _config(case, 512, 64, 64)
    for threads in (64, 128, 256):
        if splits <= MOST_ROWS * threads // 8:
            return _config(case, 512, 32, threads)
    if splits <= 256:  # four for each thread
        return _config(case, 512, 16, 256)  # half a line, two sectors: 128 blocks in the benchmark's grid
    return _config(case, 512, 32, 512)


def space(case: Case) -> list[Config]:
    configs = [
        _config(case, most, chunk, threads)
        for most in (128, 512)
        for chunk in (8, 16, 32, 64)
        for threads in (64, 128, 256, 512)
    ]
    return [config for n, config in enumerate(configs) if config not in configs[:n]]


KERNEL = Kernel(run=run, default=default, space=space)
