"""Selection of the k largest values in TileLang: a bound, a filter, one small sort; three launches, exact for any input.

If every one of B whole blocks has M values at or above a bound, with B·M >= k, then the k-th largest value of all
reaches it too: nothing below the bound can be selected. `find_bounds` takes the M-th largest value of every block,
`filter_values` keeps what reaches the least of them, and `select_largest` sorts what is left in one block. On N(0, 1)
about 2·k values pass; unlucky data (a sorted array, say) only makes the last launch longer. A short array goes straight
to that launch. Both sort by the network of the bitonic sort.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Device, Kernel

from tilebench_operators.bitonic_sort.impl_tilelang import SYNCHRONIZED, padded, sort_tile

SELECT = 12  # index bits of the tile of `select_largest`: half of it holds the largest values so far
WINDOW = 3  # index bits of a thread: eight values, so that many threads share a short sort
FILTER = 4  # values per thread of `filter_values`


@tilelang.jit(pass_configs=SYNCHRONIZED)
def bound_kernel(BITS: int):
    """bounds [blocks]: the M-th largest of each whole block of 2^BITS of x [n]; M is at most 2^BITS."""
    n, blocks = T.dynamic("n, blocks")
    threads = 1 << (BITS - WINDOW)

    @T.prim_func
    def find_bounds(
        x: T.Tensor((n,), T.float32), bounds: T.Tensor((blocks,), T.float32), count: T.Tensor((1,), T.int32), M: T.int32
    ):
        with T.Kernel(blocks, threads=threads) as block:
            tile = T.alloc_shared((padded(1 << BITS),), T.float32)
            values = T.alloc_local((1 << WINDOW,), T.float32)
            tid = T.get_thread_binding()
            for e in T.unroll(1 << WINDOW):
                values[e] = x[(block << BITS) + e * threads + tid]
            sort_tile(tile, values, tid, BITS, WINDOW)
            if tid == 0:
                bounds[block] = tile[(1 << BITS) - M + (((1 << BITS) - M) >> 5)]
                if block == 0:
                    count[0] = 0  # for the next launch

    return find_bounds


@tilelang.jit
def filter_kernel(threads: int):
    """Append the values of x [n] that reach the least of bounds [blocks] to kept, in any order; count them."""
    n, blocks = T.dynamic("n, blocks")

    @T.prim_func
    def filter_values(
        x: T.Tensor((n,), T.float32),
        bounds: T.Tensor((blocks,), T.float32),
        count: T.Tensor((1,), T.int32),
        kept: T.Tensor((n,), T.float32),
    ):
        with T.Kernel(T.ceildiv(n, threads * FILTER), threads=threads) as block:
            minima = T.alloc_shared((threads // 32,), T.float32)
            least = T.alloc_local((1,), T.float32)
            values = T.alloc_local((FILTER,), T.float32)
            keep = T.alloc_local((1,), T.int32)
            votes = T.alloc_local((1,), T.uint32)
            start = T.alloc_local((1,), T.int32)
            tid = T.get_thread_binding()
            for u in T.unroll(FILTER):
                values[u] = -T.infinity(T.float32)
                if (block * FILTER + u) * threads + tid < n:
                    values[u] = x[(block * FILTER + u) * threads + tid]
            least[0] = T.infinity(T.float32)
            for i in T.serial(T.ceildiv(blocks, threads)):
                if i * threads + tid < blocks:
                    least[0] = T.min(least[0], bounds[i * threads + tid])
            least[0] = T.warp_reduce_min(least[0])
            if tid % 32 == 0:
                minima[tid // 32] = least[0]
            T.sync_threads()
            for w in T.unroll(threads // 32):
                least[0] = T.min(least[0], minima[w])
            for u in T.unroll(FILTER):
                keep[0] = 0
                if values[u] >= least[0] and (block * FILTER + u) * threads + tid < n:
                    keep[0] = 1
                # One addition per warp reserves room for its values.
                votes[0] = T.cast(T.ballot_sync(keep[0]), T.uint32)
                start[0] = 0
                if tid % 32 == 0 and votes[0] != T.uint32(0):
                    start[0] = T.atomic_add(count[0], T.cast(T.popcount(votes[0]), T.int32), return_prev=True)
                start[0] = T.shfl_sync(start[0], 0)
                if keep[0] == 1:
                    start[0] += T.cast(
                        T.popcount(votes[0] & ((T.uint32(1) << T.cast(tid % 32, T.uint32)) - T.uint32(1))), T.int32
                    )
                    kept[start[0]] = values[u]

    return filter_values


@tilelang.jit(pass_configs=SYNCHRONIZED)
def select_kernel(counted: bool):
    """One block: y [k], the largest of x [n], or of the first count[0] of them; k is at most half a tile.

    The upper half of a sorted tile goes on, and is sorted again together with as many new values.
    """
    n, k = T.dynamic("n, k")
    HALF = 1 << (SELECT - 1)
    threads = 1 << (SELECT - WINDOW)
    COUNT = 1 << WINDOW

    @T.prim_func
    def select_largest(x: T.Tensor((n,), T.float32), count: T.Tensor((1,), T.int32), y: T.Tensor((k,), T.float32)):
        with T.Kernel(1, threads=threads):
            tile = T.alloc_shared((padded(1 << SELECT),), T.float32)
            values = T.alloc_local((COUNT,), T.float32)
            end = T.alloc_local((1,), T.int32)
            tid = T.get_thread_binding()
            if counted:
                end[0] = count[0]
            else:
                end[0] = n
            # First 2 · HALF values, then HALF more at a time, in the threads that hold the tile's lower half.
            for turn in T.serial(T.max(1, T.ceildiv(end[0], HALF) - 1)):
                if turn == 0:
                    for e in T.unroll(COUNT):
                        values[e] = -T.infinity(T.float32)
                        if e * threads + tid < end[0]:
                            values[e] = x[e * threads + tid]
                else:
                    for e in T.unroll(COUNT):
                        values[e] = tile[tid * COUNT + e + ((tid * COUNT + e) >> 5)]
                        if tid < threads // 2:
                            values[e] = -T.infinity(T.float32)
                            if (turn + 1) * HALF + e * (threads // 2) + tid < end[0]:
                                values[e] = x[(turn + 1) * HALF + e * (threads // 2) + tid]
                T.sync_threads()
                sort_tile(tile, values, tid, SELECT, WINDOW)
            for e in T.unroll(COUNT // 2):
                if e * threads + tid < k:
                    y[e * threads + tid] = tile[
                        2 * HALF - 1 - (e * threads + tid) + ((2 * HALF - 1 - (e * threads + tid)) >> 5)
                    ]

    return select_largest


def run(x: torch.Tensor, N: int, k: int, *, BITS: int) -> torch.Tensor:
    """Return the k largest of x [N], in descending order; a bound is looked for in every 2^BITS values."""
    y = torch.empty(k, dtype=x.dtype, device=x.device)
    count = torch.empty(1, dtype=torch.int32, device=x.device)
    blocks = N >> BITS
    if N <= 1 << SELECT or k > blocks << (BITS - 1):
        select_kernel(False)(x, count, y)
        return y
    bounds = torch.empty(blocks, dtype=x.dtype, device=x.device)
    kept = torch.empty_like(x)  # room for everything: the filter may keep all
    bound_kernel(BITS)(x, bounds, count, -(-k // blocks))
    filter_kernel(256)(x, bounds, count, kept)
    select_kernel(True)(kept, count, y)
    return y


def default(case: Case) -> Config:
    # About a block per multiprocessor, and large enough that the least of the M-th largest lies near their mean.
    return {"BITS": min(13, max(10, (case["N"] - 1).bit_length() - 7))}


def space(case: Case) -> list[Config]:
    return [{"BITS": bits} for bits in (9, 10, 11, 12, 13)]


def unsupported(case: Case, device: Device) -> str | None:
    limit = 1 << (SELECT - 1)
    return f"the last kernel keeps at most {limit} values on chip" if case["k"] > limit else None


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
