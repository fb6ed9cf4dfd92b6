"""Histogram in TileLang: each block counts into histograms of its own in shared memory and adds their sums to the result.

A block keeps COPIES histograms, one for every COPIES-th lane, side by side: bin b of copy c is word b · COPIES + c. With 32
copies the lanes of a warp never meet in a bank; with fewer they seldom do, and equal values, which a single histogram would
add one after the other, are spread. But what is kept has to be cleared and added up, so more bins get fewer copies.

The values come in units of 16 bytes per thread. Each unit that has been counted makes room for the load of another one, so
that LOADS of them are always under way.

A launch before clears the result. The counting one starts while it runs, and waits for it when it has counted.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors

from tilebench_operators._tilelang_dependent import dependent_launches

VECTOR = 4  # values of a 16-byte load
ROOM = 196_608  # bytes of shared memory on a multiprocessor, for histograms
UNCHECKED = {
    tilelang.PassConfigKey.TL_DISABLE_SAFE_MEMORY_ACCESS: True
}  # the kernels keep to their arrays by themselves


@tilelang.jit(pass_configs=UNCHECKED)
def clear_kernel(threads: int):
    """Let hist [bins] be 0."""
    bins = T.dynamic("bins")
    early = dependent_launches()

    @T.prim_func
    def clear(hist: T.Tensor((bins,), T.int32)):
        with T.Kernel(T.ceildiv(bins, threads), threads=threads) as block:
            if early:
                T.pdl_trigger()
            tid = T.get_thread_binding()
            if block * threads + tid < bins:
                hist[block * threads + tid] = 0

    return clear


@tilelang.jit(pass_configs=UNCHECKED)
def count_kernel(BINS: int, COPIES: int, LOADS: int, threads: int):
    """One block counts every blocks-th unit of x [n] and adds its counts to hist [BINS].

    BINS is a constant because the size of shared memory is.
    """
    n = T.dynamic("n")
    UNIT = threads * VECTOR
    early = dependent_launches()

    @T.prim_func
    def count(x: T.Tensor((n,), T.int32), hist: T.Tensor((BINS,), T.int32), blocks: T.int32):
        with T.Kernel(blocks, threads=threads) as block:
            counts = T.alloc_shared((BINS * COPIES,), T.int32)
            values = T.alloc_local((VECTOR,), T.int32)
            following = T.alloc_local((LOADS * VECTOR,), T.int32)
            sums = T.alloc_local((1,), T.int32)
            tid = T.get_thread_binding()
            units = n // UNIT
            for u in T.unroll(LOADS):
                if block + u * blocks < units:
                    for v in T.vectorized(VECTOR):
                        following[u * VECTOR + v] = x[((block + u * blocks) * threads + tid) * VECTOR + v]
            for i in T.serial(T.ceildiv(BINS * COPIES, threads)):
                if i * threads + tid < BINS * COPIES:
                    counts[i * threads + tid] = 0
            T.sync_threads()
            for turn in T.serial(T.ceildiv(units, LOADS * blocks)):
                for u in T.unroll(LOADS):
                    unit = (turn * LOADS + u) * blocks + block
                    later = unit + LOADS * blocks
                    if unit < units:
                        for v in T.unroll(VECTOR):
                            values[v] = following[u * VECTOR + v]
                        if later < units:
                            for v in T.vectorized(VECTOR):
                                following[u * VECTOR + v] = x[(later * threads + tid) * VECTOR + v]
                        for v in T.unroll(VECTOR):
                            T.atomic_add(counts[values[v] * COPIES + tid % COPIES], 1)
            if block == blocks - 1:  # what fills no unit
                for v in T.serial(VECTOR):
                    if units * UNIT + v * threads + tid < n:
                        T.atomic_add(counts[x[units * UNIT + v * threads + tid] * COPIES + tid % COPIES], 1)
            T.sync_threads()
            if early:
                T.pdl_sync()
            for i in T.serial(T.ceildiv(BINS, threads)):
                if i * threads + tid < BINS:
                    # Every block begins with other bins, so that they don't queue for the same words of hist.
                    b = (i * threads + tid + block * 32) % BINS
                    sums[0] = 0
                    for c in T.unroll(COPIES):
                        # Every thread begins with another copy, so that they read different banks.
                        sums[0] += counts[b * COPIES + (c + tid) % COPIES]
                    if sums[0] != 0:
                        T.atomic_add(hist[b], sums[0])

    return count


def run(x: torch.Tensor, N: int, num_bins: int, *, COPIES: int, LOADS: int, PER_SM: int, threads: int) -> torch.Tensor:
    """Return hist [num_bins] int32 of x [N] int32 with values in [0, num_bins)."""
    # As many blocks as the device holds at once, but none that counts fewer values than it has bins.
    least = max(threads * LOADS * VECTOR, num_bins)
    blocks = min(PER_SM * multiprocessors(x.device), -(-N // least))
    hist = torch.empty(num_bins, dtype=torch.int32, device=x.device)
    clear_kernel(256)(hist)
    count_kernel(num_bins, COPIES, LOADS, threads)(x, hist, blocks)
    return hist


def default(case: Case) -> Config:
    copies = 32
    while copies > 1 and copies * case["num_bins"] > 4096:
        copies //= 2
    if case["N"] < 2**20:  # one load of each thread; few blocks where each has many bins to add to the result
        return {"COPIES": copies, "LOADS": 1, "PER_SM": 1, "threads": 512 if case["num_bins"] <= 256 else 1024}
    return {"COPIES": copies, "LOADS": 4 if case["N"] >= 2**22 else 2, "PER_SM": 1, "threads": 1024}


def space(case: Case) -> list[Config]:
    return [
        {"COPIES": copies, "LOADS": loads, "PER_SM": per_sm, "threads": threads}
        for copies in (1, 4, 8, 16, 32)
        for per_sm, threads, loads in (
            (1, 1024, 1), (1, 1024, 2), (1, 1024, 4), (1, 512, 1), (2, 512, 2), (2, 512, 4), (2, 256, 2),
        )
        if per_sm * 4 * copies * case["num_bins"] <= ROOM
    ]  # fmt: skip


KERNEL = Kernel(run=run, default=default, space=space)
