"""Histogram in TileLang, two launches: each block counts into histograms of its own in shared memory, which are then added up.

A block keeps COPIES histograms, one for every COPIES-th lane, side by side: bin b of copy c is word b · COPIES + c. With 32
copies the lanes of a warp never meet in a bank; with fewer they seldom do, and equal values, which a single histogram would
add one after the other, are spread. More bins leave room for fewer copies.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors

VECTOR = 4  # values of a 16-byte load
ROOM = 196_608  # bytes of shared memory on a multiprocessor, for histograms


@tilelang.jit
def count_kernel(BINS: int, COPIES: int, LOADS: int, threads: int):
    """One block counts every blocks-th stretch of x [n] into its row of rows [blocks, BINS].

    BINS is a constant because the size of shared memory is.
    """
    n, blocks = T.dynamic("n, blocks")
    STRETCH = threads * LOADS * VECTOR

    @T.prim_func
    def count(x: T.Tensor((n,), T.int32), rows: T.Tensor((blocks, BINS), T.int32)):
        with T.Kernel(blocks, threads=threads) as block:
            counts = T.alloc_shared((BINS * COPIES,), T.int32)
            values = T.alloc_local((LOADS * VECTOR,), T.int32)
            sums = T.alloc_local((1,), T.int32)
            tid = T.get_thread_binding()
            for i in T.serial(T.ceildiv(BINS * COPIES, threads)):
                if i * threads + tid < BINS * COPIES:
                    counts[i * threads + tid] = 0
            T.sync_threads()
            for turn in T.serial(T.ceildiv(T.ceildiv(n, STRETCH) - block, blocks)):
                start = (turn * blocks + block) * STRETCH
                if start + STRETCH <= n:
                    # All loads first: the additions wait for memory once.
                    for u in T.unroll(LOADS):
                        for v in T.vectorized(VECTOR):
                            values[u * VECTOR + v] = x[start + (u * threads + tid) * VECTOR + v]
                    for u in T.unroll(LOADS * VECTOR):
                        T.atomic_add(counts[values[u] * COPIES + tid % COPIES], 1)
                else:
                    for u in T.serial(LOADS * VECTOR):
                        if start + u * threads + tid < n:
                            T.atomic_add(counts[x[start + u * threads + tid] * COPIES + tid % COPIES], 1)
            T.sync_threads()
            for i in T.serial(T.ceildiv(BINS, threads)):
                if i * threads + tid < BINS:
                    sums[0] = 0
                    for c in T.unroll(COPIES):
                        # Every thread begins with another copy, so that they read different banks.
                        sums[0] += counts[(i * threads + tid) * COPIES + (c + tid) % COPIES]
                    rows[block, i * threads + tid] = sums[0]

    return count


@tilelang.jit
def sum_kernel(ROWS: int):
    """One block adds 32 columns of rows [blocks, bins] into hist [bins]; a warp reads 128 bytes of a row."""
    blocks, bins = T.dynamic("blocks, bins")

    @T.prim_func
    def add_up(rows: T.Tensor((blocks, bins), T.int32), hist: T.Tensor((bins,), T.int32)):
        with T.Kernel(T.ceildiv(bins, 32), threads=32 * ROWS) as block:
            partial = T.alloc_shared((ROWS, 32), T.int32)
            sums = T.alloc_local((1,), T.int32)
            lane = T.get_thread_binding() % 32
            row = T.get_thread_binding() // 32
            sums[0] = 0
            if block * 32 + lane < bins:
                for i in T.serial(T.ceildiv(blocks, ROWS)):
                    if i * ROWS + row < blocks:
                        sums[0] += rows[i * ROWS + row, block * 32 + lane]
            partial[row, lane] = sums[0]
            T.sync_threads()
            if row == 0 and block * 32 + lane < bins:
                sums[0] = 0
                for i in T.unroll(ROWS):
                    sums[0] += partial[i, lane]
                hist[block * 32 + lane] = sums[0]

    return add_up


def run(x: torch.Tensor, N: int, num_bins: int, *, COPIES: int, LOADS: int, PER_SM: int, threads: int) -> torch.Tensor:
    """Return hist [num_bins] int32 of x [N] int32 with values in [0, num_bins)."""
    # As many blocks as the device holds at once, but none that counts fewer values than it has bins.
    stretch = threads * LOADS * VECTOR
    blocks = min(PER_SM * multiprocessors(x.device), -(-N // max(stretch, num_bins)))
    rows = torch.empty((blocks, num_bins), dtype=torch.int32, device=x.device)
    hist = torch.empty(num_bins, dtype=torch.int32, device=x.device)
    count_kernel(num_bins, COPIES, LOADS, threads)(x, rows)
    sum_kernel(32)(rows, hist)
    return hist


def default(case: Case) -> Config:
    copies = 32
    while copies > 1 and copies * case["num_bins"] > 16384:
        copies //= 2
    per_sm = 1 if copies * case["num_bins"] > 8192 else 2
    return {"COPIES": copies, "LOADS": 4, "PER_SM": per_sm, "threads": 1024 if case["N"] >= 2**22 else 512}


def space(case: Case) -> list[Config]:
    return [
        {"COPIES": copies, "LOADS": loads, "PER_SM": per_sm, "threads": threads}
        for copies in (1, 4, 8, 16, 32)
        for per_sm, threads in ((1, 1024), (2, 512), (2, 1024), (4, 512))
        for loads in (2, 4)
        if per_sm * 4 * copies * case["num_bins"] <= ROOM
    ]


KERNEL = Kernel(run=run, default=default, space=space)
