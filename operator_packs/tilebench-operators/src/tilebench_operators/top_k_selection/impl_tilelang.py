"""Selection of the k largest values in TileLang: a bound, a filter, ranks by counting; three launches, exact for any input.

If every one of B groups has M values at or above a bound, with B·M >= k, then so does the k-th largest value of all:
nothing below the bound can be selected. `find_bounds` takes the M-th largest value of every group, `filter_values` keeps
what reaches the least of them, and `rank_values` counts for each value that is left how many are larger: its place in the
result. Counting compares all pairs, but all multiprocessors share the work and no step waits for another one, unlike in a
sort. On N(0, 1) a few times k values pass, at most some thousand. A short array goes straight to the last launch.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

SHORT = 4096  # values that are ranked without a filter
TILE = 4096  # elements of a block of `find_bounds` and `filter_values`
RUN = 16  # neighbours, of a thread of `find_bounds`
THREADS = TILE // RUN
RANK_BLOCKS = 512  # the host does not know how many values are left
# The barriers below are enough, the compiler would double them; and the kernels here keep to their arrays by themselves.
UNCHECKED = {
    tilelang.PassConfigKey.TL_DISABLE_THREAD_STORAGE_SYNC: True,
    tilelang.PassConfigKey.TL_DISABLE_SAFE_MEMORY_ACCESS: True,
}


@T.macro
def group_maximum(values, partial, largest, tid, RUNS: int):
    """largest [1]: of values [RUN] of RUNS neighbouring threads, a power of two; partial [warps] is for their exchange."""
    largest[0] = values[0]
    for e in T.unroll(1, RUN):
        largest[0] = T.max(largest[0], values[e])
    for step in T.unroll(min(5, RUNS.bit_length() - 1)):
        largest[0] = T.max(largest[0], T.shfl_xor(largest[0], 1 << step))
    if RUNS > 32:
        T.sync_threads()
        if tid % 32 == 0:
            partial[tid // 32] = largest[0]
        T.sync_threads()
        for w in T.unroll(RUNS // 32):
            largest[0] = T.max(largest[0], partial[tid // RUNS * (RUNS // 32) + w])


@tilelang.jit(pass_configs=UNCHECKED)
def bound_kernel(SIZE: int, WIDTH: int):
    """bounds [groups]: the M-th largest of each group of SIZE values of x [n], or less if values are equal; M is small.

    A group takes every groups-th run of 16 neighbours, so that a sorted array has groups of equal standing. WIDTH values
    are read at once.
    """
    n, groups = T.dynamic("n, groups")
    RUNS = SIZE // RUN
    GROUPS = TILE // SIZE

    @T.prim_func
    def find_bounds(
        x: T.Tensor((n,), T.float32), bounds: T.Tensor((groups,), T.float32), count: T.Tensor((1,), T.int32), M: T.int32
    ):
        with T.Kernel(T.ceildiv(groups, GROUPS), threads=THREADS) as block:
            values = T.alloc_local((RUN,), T.float32)
            largest = T.alloc_local((1,), T.float32)
            partial = T.alloc_shared((THREADS // 32,), T.float32)
            tid = T.get_thread_binding()
            for e in T.unroll(RUN):
                values[e] = -T.infinity(T.float32)
            if block * GROUPS + tid // RUNS < groups:
                for u in T.unroll(RUN // WIDTH):
                    for v in T.vectorized(WIDTH):
                        values[u * WIDTH + v] = x[
                            (tid % RUNS * groups + block * GROUPS + tid // RUNS) * RUN + u * WIDTH + v
                        ]
            group_maximum(values, partial, largest, tid, RUNS)
            for _ in T.serial(M - 1):
                for e in T.unroll(RUN):
                    if values[e] == largest[0]:
                        values[e] = -T.infinity(T.float32)
                group_maximum(values, partial, largest, tid, RUNS)
            if tid % RUNS == 0 and block * GROUPS + tid // RUNS < groups:
                bounds[block * GROUPS + tid // RUNS] = largest[0]
            if block == 0 and tid == 0:
                count[0] = 0  # for the next launch

    return find_bounds


@tilelang.jit(pass_configs=UNCHECKED)
def filter_kernel(WIDTH: int):
    """Append the values of x [n] that reach the least of bounds [groups] to kept, in any order; count them.

    WIDTH values of x are read at once.
    """
    n, groups, room = T.dynamic("n, groups, room")

    @T.prim_func
    def filter_values(
        x: T.Tensor((n,), T.float32),
        bounds: T.Tensor((groups,), T.float32),
        count: T.Tensor((1,), T.int32),
        kept: T.Tensor((room,), T.float32),
    ):
        with T.Kernel(T.ceildiv(n, TILE), threads=THREADS) as block:
            values = T.alloc_local((RUN,), T.float32)
            least = T.alloc_local((1,), T.float32)
            mine = T.alloc_local((1,), T.int32)
            place = T.alloc_local((1,), T.int32)
            minima = T.alloc_shared((THREADS // 32,), T.float32)
            taken = T.alloc_shared((1,), T.int32)
            first = T.alloc_shared((1,), T.int32)
            tid = T.get_thread_binding()
            if block * TILE + TILE <= n:
                for u in T.unroll(RUN // 4):
                    for w in T.unroll(4 // WIDTH):
                        for v in T.vectorized(WIDTH):
                            values[u * 4 + w * WIDTH + v] = x[block * TILE + (u * THREADS + tid) * 4 + w * WIDTH + v]
            else:
                for e in T.unroll(RUN):
                    values[e] = -T.infinity(T.float32)
                    if block * TILE + (e // 4 * THREADS + tid) * 4 + e % 4 < n:
                        values[e] = x[block * TILE + (e // 4 * THREADS + tid) * 4 + e % 4]
            least[0] = T.infinity(T.float32)
            for i in T.serial(T.ceildiv(groups, THREADS)):
                if i * THREADS + tid < groups:
                    least[0] = T.min(least[0], bounds[i * THREADS + tid])
            least[0] = T.warp_reduce_min(least[0])
            if tid % 32 == 0:
                minima[tid // 32] = least[0]
            if tid == 0:
                taken[0] = 0
            T.sync_threads()
            for w in T.unroll(THREADS // 32):
                least[0] = T.min(least[0], minima[w])
            # The block reserves room with one addition, its threads divide it among themselves in shared memory.
            mine[0] = 0
            for e in T.unroll(RUN):
                if values[e] >= least[0] and block * TILE + (e // 4 * THREADS + tid) * 4 + e % 4 < n:
                    mine[0] += 1
            if mine[0] > 0:
                place[0] = T.atomic_add(taken[0], mine[0], return_prev=True)
            T.sync_threads()
            if tid == 0 and taken[0] > 0:
                first[0] = T.atomic_add(count[0], taken[0], return_prev=True)
            T.sync_threads()
            if mine[0] > 0:
                place[0] += first[0]
                for e in T.unroll(RUN):
                    if values[e] >= least[0] and block * TILE + (e // 4 * THREADS + tid) * 4 + e % 4 < n:
                        kept[place[0]] = values[e]
                        place[0] += 1

    return filter_values


@T.macro
def successor(x):
    """The next larger fp32 number; infinity's is a NaN."""
    bits = T.alloc_local((1,), T.int32)
    bits[0] = T.reinterpret(x[0], T.int32)
    if (bits[0] & 0x7FFFFFFF) == 0:
        bits[0] = 0  # not -0
    bits[0] += T.if_then_else(bits[0] < 0, -1, 1)
    x[0] = T.reinterpret(bits[0], T.float32)


@tilelang.jit(pass_configs=UNCHECKED)
def rank_kernel(counted: bool, CHUNK: int, VALUES: int, threads: int):
    """y [k], the largest of x [n], or of the first count[0] of x; blocks take turns at chunks of CHUNK values.

    A turn compares them with VALUES · threads others. If counted, x goes on for as many elements behind the values.

    Equal values are ranked by their index: for those before the chunk, "not less" instead of "greater" counts. Their
    successors among the fp32 numbers are compared, which is one comparison for all. Infinity's is a NaN, which is not
    less than or equal to anything.
    """
    n, k = T.dynamic("n, k")
    TURN = VALUES * threads

    @T.prim_func
    def rank_values(
        x: T.Tensor((n,), T.float32), count: T.Tensor((1,), T.int32), y: T.Tensor((k,), T.float32), blocks: T.int32
    ):
        with T.Kernel(blocks, threads=threads) as block:
            ranks = T.alloc_shared((CHUNK,), T.int32)
            value = T.alloc_local((CHUNK,), T.float32)
            others = T.alloc_local((VALUES,), T.float32)
            other = T.alloc_local((1,), T.float32)
            larger = T.alloc_local((CHUNK,), T.float32)
            least = T.alloc_local((1,), T.int32)
            rank = T.alloc_local((1,), T.int32)
            end = T.alloc_local((1,), T.int32)
            tid = T.get_thread_binding()
            if counted:
                end[0] = count[0]
            else:
                end[0] = n
            for chunk in T.serial(T.ceildiv(end[0] - block * CHUNK, blocks * CHUNK)):
                first = (chunk * blocks + block) * CHUNK
                if tid < CHUNK:
                    ranks[tid] = 0
                for c in T.unroll(CHUNK):
                    value[c] = -T.infinity(T.float32)
                    if first + c < end[0]:
                        value[c] = x[first + c]
                least[0] = 0
                T.sync_threads()
                # One turn, unless unlucky data let much pass; then no more turns than the chunk's largest value needs.
                for turn in T.serial(T.ceildiv(end[0], TURN)):
                    if least[0] < k:
                        if counted:
                            for u in T.unroll(VALUES // 4):
                                for v in T.vectorized(4):
                                    others[u * 4 + v] = x[turn * TURN + (u * threads + tid) * 4 + v]
                        else:
                            for e in T.unroll(VALUES):
                                if turn * TURN + (e // 4 * threads + tid) * 4 + e % 4 < n:
                                    others[e] = x[turn * TURN + (e // 4 * threads + tid) * 4 + e % 4]
                        for c in T.unroll(CHUNK):
                            larger[c] = 0.0
                        for e in T.unroll(VALUES):
                            other[0] = others[e]
                            if turn * TURN + (e // 4 * threads + tid) * 4 + e % 4 < first:
                                successor(other)
                            if turn * TURN + (e // 4 * threads + tid) * 4 + e % 4 >= end[0]:
                                other[0] = -T.infinity(T.float32)
                            for c in T.unroll(CHUNK):
                                larger[c] += T.if_then_else(other[0] <= value[c], T.float32(0.0), T.float32(1.0))
                        for c in T.unroll(CHUNK):
                            rank[0] = T.warp_reduce_sum(T.cast(larger[c], T.int32))
                            if tid % 32 == 0:
                                T.atomic_add(ranks[c], rank[0])
                        T.sync_threads()
                        if turn * TURN + TURN < end[0]:
                            least[0] = ranks[0]
                            for c in T.unroll(1, CHUNK):
                                least[0] = T.min(least[0], ranks[c])
                            T.sync_threads()
                if tid < CHUNK and first + tid < end[0]:
                    rank[0] = ranks[tid]
                    other[0] = x[first + tid]
                    for c in T.unroll(CHUNK):
                        if c < tid and value[c] == other[0]:
                            rank[0] += 1
                    if rank[0] < k:
                        y[rank[0]] = other[0]

    return rank_values


def run(x: torch.Tensor, N: int, k: int, *, GROUP: int, CHUNK: int, VALUES: int, threads: int) -> torch.Tensor:
    """Return the k largest of x [N], in descending order; about GROUP per group are looked for."""
    y = torch.empty(k, dtype=x.dtype, device=x.device)
    count = torch.empty(1, dtype=torch.int32, device=x.device)
    if N <= SHORT:
        rank_kernel(False, CHUNK, VALUES, threads)(x, count, y, -(-N // CHUNK))
        return y
    SIZE = min(TILE, max(2 * RUN, 1 << (N * GROUP // k).bit_length() - 1))
    groups = N // SIZE
    bounds = torch.empty(groups, dtype=x.dtype, device=x.device)
    # Room for everything: the filter may keep all.
    kept = torch.empty(N + VALUES * threads, dtype=x.dtype, device=x.device)
    width = 4 if x.data_ptr() % 16 == 0 else 1
    bound_kernel(SIZE, width)(x, bounds, count, -(-k // groups))
    filter_kernel(width)(x, bounds, count, kept)
    rank_kernel(True, CHUNK, VALUES, threads)(kept, count, y, RANK_BLOCKS)
    return y


def default(case: Case) -> Config:
    # A turn holds what the filter keeps, more or less: of 256 groups the least maximum leaves some 1,600 values.
    values = 16 if case["k"] > 256 or case["N"] <= SHORT else 8
    return {"GROUP": 4, "CHUNK": 8, "VALUES": values, "threads": 256}


def space(case: Case) -> list[Config]:
    return [
        {"GROUP": group, "CHUNK": chunk, "VALUES": values, "threads": threads}
        for group in (2, 4, 8)
        for chunk in (4, 8, 16)
        for values, threads in ((16, 128), (32, 128), (8, 256), (16, 256))
    ]


KERNEL = Kernel(run=run, default=default, space=space)
