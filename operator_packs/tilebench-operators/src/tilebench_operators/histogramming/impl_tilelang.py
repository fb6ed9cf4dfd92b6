"""Histogram in TileLang, two launches: one clears the result; in the other each block counts into histograms of its own in
shared memory and adds their sums to the result.

A block keeps COPIES histograms, one for every COPIES-th lane, side by side: bin b of copy c is word b · COPIES + c. With 32
copies the lanes of a warp never meet in a bank; with fewer they seldom do, and equal values, which a single histogram would
add one after the other, are spread. More bins leave room for fewer copies. While a block counts what it has loaded, the
next loads are under way. It starts while the first launch still runs (programmatic dependent launch), and waits before it adds
to the result.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors

from tilebench_operators._tilelang_dependent import dependent_launches
from tilebench_operators._tilelang_once import PRELUDE, load_once

VECTOR = 4  # values of a 16-byte load
ROOM = 196_608  # bytes of shared memory on a multiprocessor, for histograms


@tilelang.jit
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


@tilelang.jit
def count_kernel(BINS: int, COPIES: int, LOADS: int, threads: int):
    """One block counts every blocks-th stretch of x [n] and adds its counts to hist [BINS].

    BINS is a constant because the size of shared memory is.
    """
    n = T.dynamic("n")
    early = dependent_launches()
    STRETCH = threads * LOADS * VECTOR

    @T.prim_func
    def count(x: T.Tensor((n,), T.int32), hist: T.Tensor((BINS,), T.int32), blocks: T.int32):
        with T.Kernel(blocks, threads=threads, prelude=PRELUDE) as block:
            counts = T.alloc_shared((BINS * COPIES,), T.int32)
            values = T.alloc_local((LOADS * VECTOR,), T.int32)
            following = T.alloc_local((LOADS * VECTOR,), T.int32)
            sums = T.alloc_local((1,), T.int32)
            tid = T.get_thread_binding()
            if (block + 1) * STRETCH <= n:
                for u in T.unroll(LOADS):
                    load_once(following[u * VECTOR], x[block * STRETCH + (u * threads + tid) * VECTOR], 16)
            for i in T.serial(T.ceildiv(BINS * COPIES, threads)):
                if i * threads + tid < BINS * COPIES:
                    counts[i * threads + tid] = 0
            T.sync_threads()
            for turn in T.serial(T.ceildiv(T.ceildiv(n, STRETCH) - block, blocks)):
                start = (turn * blocks + block) * STRETCH
                later = start + blocks * STRETCH
                if start + STRETCH <= n:
                    for u in T.unroll(LOADS * VECTOR):
                        values[u] = following[u]
                    if later + STRETCH <= n:
                        for u in T.unroll(LOADS):
                            load_once(following[u * VECTOR], x[later + (u * threads + tid) * VECTOR], 16)
                    for u in T.unroll(LOADS * VECTOR):
                        T.atomic_add(counts[values[u] * COPIES + tid % COPIES], 1)
                else:
                    for u in T.serial(LOADS * VECTOR):
                        if start + u * threads + tid < n:
                            T.atomic_add(counts[x[start + u * threads + tid] * COPIES + tid % COPIES], 1)
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
    stretch = threads * LOADS * VECTOR
    blocks = min(PER_SM * multiprocessors(x.device), -(-N // max(stretch, num_bins)))
    hist = torch.empty(num_bins, dtype=torch.int32, device=x.device)
    clear_kernel(256)(hist)
    count_kernel(num_bins, COPIES, LOADS, threads)(x, hist, blocks)
    return hist


def default(case: Case) -> Config:
    copies = 32
    while copies > 1 and copies * case["num_bins"] > 16384:
        copies //= 2
    if case["N"] < 2**20:  # many small blocks, to clear and to add up whose few histograms takes as long as to count
        copies = max(1, min(copies, 4096 // case["num_bins"]))
        return {"COPIES": copies, "LOADS": 2, "PER_SM": 2, "threads": 256}
    if copies * case["num_bins"] > 8192:
        return {"COPIES": copies, "LOADS": 4, "PER_SM": 1, "threads": 1024 if case["N"] >= 2**22 else 512}
    return {"COPIES": copies, "LOADS": 4, "PER_SM": 2, "threads": 512}


def space(case: Case) -> list[Config]:
    return [
        {"COPIES": copies, "LOADS": loads, "PER_SM": per_sm, "threads": threads}
        for copies in (1, 4, 8, 16, 32)
        for per_sm, threads in ((1, 1024), (2, 256), (2, 512), (4, 512))
        for loads in (2, 4)
        if per_sm * 4 * copies * case["num_bins"] <= ROOM
    ]


KERNEL = Kernel(run=run, default=default, space=space)
