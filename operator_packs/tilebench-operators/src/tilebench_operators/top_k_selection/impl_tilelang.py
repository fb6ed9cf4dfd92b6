"""Selection of the k largest values in TileLang: one launch, exact for any input.

A short array (`select_short`) fits into one block's registers. If the largest values of k groups of threads are at or above
a bound, so is the k-th largest value of all: what reaches the bound is sorted by linear bins between the bound and the
maximum. Bins are counted in shared memory, their counts summed up, and the few values of a bin rank each other.

A long array (`select_long`) is cut into one share per multiprocessor. Each block publishes its RANKS largest values as a
sorted list. It finds them among the few values that reach a bound: of the maxima of twice as many groups of threads, the
one in place RANKS. Behind a barrier of the whole grid, a value's place in the result is the sum of its places in all lists,
which binary searches find. That is right if k values reach the last entry of every list, which each block sees by itself.
Of k values in random order a share has about k / BLOCKS, so it takes an unlucky order (a sorted array) to fail. Then the
k-th largest value is found bit by bit, with a barrier for each.
"""

import math

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors

BINS = 2048
MOST_BLOCKS = 128
MOST_RANKS = 64
RANKED_BY = 4  # threads that compare a key with all others
MOST_VALUES = 32  # that a thread of `select_long` keeps; beyond, every array takes the way bit by bit
FINITE = 3.4028234663852886e38  # the largest finite fp32 number
LOWEST_KEY = -0x7F800001  # of -inf, see `flip`
UNKNOWN = 0x7FFFFFFF  # above the keys of all numbers
# The barriers below are enough, the compiler would double them; and the kernels here keep to their arrays by themselves.
UNCHECKED = {
    tilelang.PassConfigKey.TL_DISABLE_SHARED_MEMORY_REUSE: True,
    tilelang.PassConfigKey.TL_DISABLE_THREAD_STORAGE_SYNC: True,
    tilelang.PassConfigKey.TL_DISABLE_SAFE_MEMORY_ACCESS: True,
}


def flip(bits):
    """Map a float's bits to an integer in the same order, and back."""
    return bits ^ (bits >> 31 & 0x7FFFFFFF)


@T.macro
def load_share(x, values, begin, end, tid, VALUES: int, WIDTH: int, threads: int):
    """values [VALUES]: a thread's quads of x[begin:end], WIDTH values read at once; -inf where there are none."""
    if begin + VALUES * threads <= end:
        for u in T.unroll(VALUES // 4):
            for w in T.unroll(4 // WIDTH):
                for v in T.vectorized(WIDTH):
                    values[u * 4 + w * WIDTH + v] = x[begin + (u * threads + tid) * 4 + w * WIDTH + v]
    else:
        for e in T.unroll(VALUES):
            values[e] = -T.infinity(T.float32)
            if begin + (e // 4 * threads + tid) * 4 + e % 4 < end:
                values[e] = x[begin + (e // 4 * threads + tid) * 4 + e % 4]


@T.macro
def group_bound(values, bound, first, wanted, active, tid, VALUES: int):
    """bound [1]: the largest value of the thread's group, of up to a warp's threads; `active` threads have values.

    Groups are as large as leaves `wanted` of them. One without values has no say: infinity.
    """
    bound[0] = values[0]
    for e in T.unroll(1, VALUES):
        bound[0] = T.max(bound[0], values[e])
    first[0] = tid
    for step in T.unroll(5):
        if (2 << step) * wanted <= active:
            bound[0] = T.max(bound[0], T.shfl_xor(bound[0], 1 << step))
            first[0] = first[0] & ~(1 << step)
    if first[0] >= active:
        bound[0] = T.infinity(T.float32)


def add_shared(element, amount):
    """Add to an int32 in shared memory and return what was there. T.atomic_add would do so by generic addresses."""
    return T.call_extern("int32", "atomicAdd", T.address_of(element), amount)


@T.macro
def keep_values(values, bound, kept, taken, place, total, lane, VALUES: int, ROOM: int, KEYS: bool):
    """Append what reaches bound [1] to kept [ROOM] in any order, or its keys, and count it in taken [1], which is above ROOM if
    it is too much. A warp reserves room with one addition.
    """
    total[0] = 0
    for e in T.unroll(VALUES):
        if values[e] >= bound[0]:
            total[0] += 1
    place[0] = total[0]
    for step in T.unroll(5):
        before = T.shfl_up(place[0], 1 << step)
        if lane >= 1 << step:
            place[0] += before
    place[0] -= total[0]
    total[0] += place[0]
    if lane == 31:
        total[0] = add_shared(taken[0], total[0])
    place[0] += T.shfl_sync(total[0], 31)
    for e in T.unroll(VALUES):
        if values[e] >= bound[0]:
            if place[0] < ROOM:
                kept[place[0]] = flip(T.reinterpret(values[e], T.int32)) if KEYS else values[e]
            place[0] += 1


def bin_of(value, high, scale):
    """A value's bin, from the largest down. Infinities and NaN products end up in the first or last one, in order."""
    return T.cast(T.min(T.max((high - value) * scale, T.float32(0.0)), T.float32(BINS - 1)), T.int32)


@tilelang.jit(pass_configs=UNCHECKED)
def short_kernel(VALUES: int, WIDTH: int, threads: int):
    """y [k], the largest of x [n], n <= VALUES · threads, by one block."""
    n, k = T.dynamic("n, k")
    WARPS = threads // 32
    OWN = BINS // threads  # bins that a thread sums up
    BATCH = 4  # atomic additions under way
    ROOM = VALUES * threads

    @T.prim_func
    def select_short(x: T.Tensor((n,), T.float32), y: T.Tensor((k,), T.float32)):
        with T.Kernel(1, threads=threads):
            kept = T.alloc_shared((ROOM,), T.float32)
            ordered = T.alloc_shared((ROOM,), T.float32)
            bins = T.alloc_shared((BINS,), T.int32)
            lows = T.alloc_shared((WARPS,), T.float32)
            highs = T.alloc_shared((WARPS,), T.float32)
            counts = T.alloc_shared((WARPS,), T.int32)
            taken = T.alloc_shared((1,), T.int32)
            finish = T.alloc_shared((1,), T.int32)
            last_bin = T.alloc_shared((1,), T.int32)
            values = T.alloc_local((VALUES,), T.float32)
            bound = T.alloc_local((1,), T.float32)
            low = T.alloc_local((1,), T.float32)
            high = T.alloc_local((1,), T.float32)
            scale = T.alloc_local((1,), T.float32)
            value = T.alloc_local((1,), T.float32)
            place = T.alloc_local((1,), T.int32)
            total = T.alloc_local((1,), T.int32)
            mine = T.alloc_local((OWN,), T.int32)
            places = T.alloc_local((BATCH,), T.int32)
            columns = T.alloc_local((4,), T.float32)
            own_bin = T.alloc_local((1,), T.int32)
            start = T.alloc_local((1,), T.int32)
            tid = T.get_thread_binding()
            lane = tid % 32
            warp = tid // 32
            active = T.min(T.ceildiv(n, 4), threads)
            load_share(x, values, 0, n, tid, VALUES, WIDTH, threads)
            for b in T.unroll(OWN):
                bins[b * threads + tid] = 0
            if tid == 0:
                taken[0] = 0
            # Where there are fewer threads than k, each has two or four groups, of neighbouring columns of its quads.
            for c in T.unroll(4):
                columns[c] = values[c]
                for u in T.unroll(1, VALUES // 4):
                    columns[c] = T.max(columns[c], values[u * 4 + c])
            high[0] = T.max(T.max(columns[0], columns[1]), T.max(columns[2], columns[3]))
            if k <= active:
                group_bound(values, low, place, k, active, tid, VALUES)
            else:
                low[0] = T.infinity(T.float32)
                if k <= T.min(n // 2, threads * 2):
                    columns[0] = T.max(columns[0], columns[1])
                    columns[1] = columns[0]
                    columns[2] = T.max(columns[2], columns[3])
                    columns[3] = columns[2]
                if k <= threads * 4:
                    for c in T.unroll(4):
                        if tid * 4 + c < n:
                            low[0] = T.min(low[0], columns[c])
                else:  # no bound: bins begin at the smallest value
                    for e in T.unroll(VALUES):
                        if values[e] >= T.float32(-FINITE):
                            low[0] = T.min(low[0], values[e])
            low[0] = T.warp_reduce_min(low[0])
            high[0] = T.warp_reduce_max(high[0])
            if lane == 0:
                lows[warp] = low[0]
                highs[warp] = high[0]
            T.sync_threads()
            low[0] = T.max(T.warp_reduce_min(lows[lane % WARPS]), T.float32(-FINITE))
            high[0] = T.min(T.warp_reduce_max(highs[lane % WARPS]), T.float32(FINITE))
            scale[0] = T.float32(BINS) / (high[0] - low[0])
            # -inf is never kept: what is missing at the end can only be that.
            bound[0] = low[0]
            keep_values(values, bound, kept, taken, place, total, lane, VALUES, ROOM, False)
            T.sync_threads()
            total[0] = taken[0]
            if tid == 0:
                finish[0] = total[0]
                last_bin[0] = BINS
            for i in T.serial(T.ceildiv(total[0], BATCH * threads)):
                for q in T.unroll(BATCH):
                    if (i * BATCH + q) * threads + tid < total[0]:
                        values[q] = kept[(i * BATCH + q) * threads + tid]
                for q in T.unroll(BATCH):
                    if (i * BATCH + q) * threads + tid < total[0]:
                        places[q] = add_shared(bins[bin_of(values[q], high[0], scale[0])], 1)
            T.sync_threads()
            # Every bin's count becomes its start in `ordered`: within the warp first, then with the warps before.
            start[0] = 0
            for b in T.unroll(OWN):
                mine[b] = bins[tid * OWN + b]
                start[0] += mine[b]
            for step in T.unroll(5):
                before = T.shfl_up(start[0], 1 << step)
                if lane >= 1 << step:
                    start[0] += before
            if lane == 31:
                counts[warp] = start[0]
            T.sync_threads()
            for b in T.unroll(OWN):
                start[0] -= mine[b]
            start[0] += T.warp_reduce_sum(T.if_then_else(lane < warp, counts[lane % WARPS], 0))
            for b in T.unroll(OWN):
                bins[tid * OWN + b] = start[0]
                if start[0] < k and k <= start[0] + mine[b]:
                    finish[0] = start[0] + mine[b]
                    last_bin[0] = tid * OWN + b  # that counts
                start[0] += mine[b]
            T.sync_threads()
            for i in T.serial(T.ceildiv(total[0], BATCH * threads)):
                for q in T.unroll(BATCH):
                    places[q] = -1
                    if (i * BATCH + q) * threads + tid < total[0]:
                        values[q] = kept[(i * BATCH + q) * threads + tid]
                        own_bin[0] = bin_of(values[q], high[0], scale[0])
                        if own_bin[0] <= last_bin[0]:
                            places[q] = add_shared(bins[own_bin[0]], 1)
                for q in T.unroll(BATCH):
                    if places[q] >= 0:
                        ordered[places[q]] = values[q]
            T.sync_threads()
            # Now a bin's entry is its end, and the start of the next one.
            for i in T.serial(T.ceildiv(finish[0], threads)):
                if i * threads + tid < finish[0]:
                    value[0] = ordered[i * threads + tid]
                    own_bin[0] = bin_of(value[0], high[0], scale[0])
                    start[0] = 0
                    if own_bin[0] > 0:
                        start[0] = bins[own_bin[0] - 1]
                    place[0] = start[0]
                    for j in T.serial(bins[own_bin[0]] - start[0]):
                        if ordered[start[0] + j] > value[0] or (
                            ordered[start[0] + j] == value[0] and start[0] + j < i * threads + tid
                        ):
                            place[0] += 1
                    if place[0] < k:
                        y[place[0]] = value[0]
            for i in T.serial(T.ceildiv(k - total[0], threads)):
                if total[0] + i * threads + tid < k:
                    y[total[0] + i * threads + tid] = -T.infinity(T.float32)

    return select_short


@T.macro
def key_of(key, x):
    """key [1]: x's bits as an integer in the same order."""
    key[0] = T.reinterpret(x, T.int32)
    key[0] = flip(key[0])


@T.macro
def rank(keys, count, index, key, place, others, tid):
    """place [1]: how many of keys [count] come before key [1], the one at `index`; equal ones in order.

    RANKED_BY threads in a row share the comparisons. Up to the next multiple of 16, `keys` is filled with LOWEST_KEY.
    """
    place[0] = 0
    for j in T.serial(T.ceildiv(count, 4 * RANKED_BY)):
        first = (j * RANKED_BY + tid % RANKED_BY) * 4
        for v in T.vectorized(4):
            others[v] = keys[first + v]
        for v in T.unroll(4):
            place[0] += T.cast(others[v] >= key[0] + T.cast(first + v >= index, T.int32), T.int32)
    place[0] += T.shfl_xor(place[0], 1)
    place[0] += T.shfl_xor(place[0], 2)


@T.macro
def search(lists, position, limit, key, own, lane, RANKS: int, BLOCKS: int):
    """position [BLOCKS / 32]: in a lane's lists, how many entries come before `key` of list `own`; equal ones by list.

    lists [RANKS, BLOCKS] is laid out so that a warp's lanes never meet in a bank.
    """
    for q in T.unroll(BLOCKS // 32):
        position[q] = 0
        limit[q] = key + T.cast(q * 32 + lane >= own, T.int32)
    for step in T.unroll(RANKS.bit_length()):
        for q in T.unroll(BLOCKS // 32):
            if lists[(position[q] + T.max((RANKS >> 1 >> step) - 1, 0)) * BLOCKS + q * 32 + lane] >= limit[q]:
                position[q] += T.max(RANKS >> 1 >> step, 1)


@tilelang.jit(pass_configs=UNCHECKED)
def long_kernel(BLOCKS: int, RANKS: int, VALUES: int, WIDTH: int, threads: int):
    """y [k], the largest of x [n], by BLOCKS blocks that are resident together: a block's RANKS largest values take part.

    lists [RANKS, BLOCKS] holds the blocks' lists of keys as columns; the last entry of a block without a list is UNKNOWN.
    state [33] int32 and larger [k] are for the way bit by bit.
    """
    n, k = T.dynamic("n, k")
    WARPS = threads // 32
    COLUMNS = BLOCKS // 32
    LISTS = RANKS * BLOCKS
    GROUPS = 4 * RANKS  # at most; where the share fills all threads there are half as many
    ROOM = 16 * max(RANKS, 16)  # some 1.4 times RANKS values reach the bound
    LOADS = -(-LISTS // (4 * threads))

    @T.prim_func
    def select_long(
        x: T.Tensor((n,), T.float32),
        lists: T.Tensor((LISTS,), T.int32),
        state: T.Tensor((33,), T.int32),
        larger: T.Tensor((k,), T.float32),
        y: T.Tensor((k,), T.float32),
    ):
        with T.Kernel(BLOCKS, threads=threads) as block:
            kept = T.alloc_shared((ROOM,), T.int32)
            every = T.alloc_shared((LISTS,), T.int32)
            maxima = T.alloc_shared((GROUPS,), T.int32)
            cut = T.alloc_shared((1,), T.int32)
            taken = T.alloc_shared((1,), T.int32)
            reached = T.alloc_shared((1,), T.int32)
            values = T.alloc_local((VALUES,), T.float32)
            bound = T.alloc_local((1,), T.float32)
            value = T.alloc_local((1,), T.float32)
            others = T.alloc_local((4,), T.int32)
            place = T.alloc_local((1,), T.int32)
            total = T.alloc_local((1,), T.int32)
            shift = T.alloc_local((1,), T.int32)
            position = T.alloc_local((COLUMNS,), T.int32)
            listed = T.alloc_local((LOADS * 4,), T.int32)
            limit = T.alloc_local((COLUMNS,), T.int32)
            key = T.alloc_local((1,), T.int32)
            least = T.alloc_local((1,), T.int32)
            tid = T.get_thread_binding()
            lane = tid % 32
            warp = tid // 32
            share = T.ceildiv(T.ceildiv(n, BLOCKS), 4) * 4
            begin = block * share
            end = T.min(n, begin + share)
            active = T.max(T.min(T.ceildiv(end - begin, 4), threads), 0)
            load_share(x, values, begin, end, tid, VALUES, WIDTH, threads)
            for i in T.unroll(T.ceildiv(ROOM, threads)):
                if i * threads + tid < ROOM:
                    kept[i * threads + tid] = LOWEST_KEY
            if tid == 0:
                taken[0] = 0
                cut[0] = LOWEST_KEY
                reached[0] = 0
            if block == 0:
                for i in T.serial(T.ceildiv(33, threads)):
                    if i * threads + tid < 33:
                        state[i * threads + tid] = 0
            # The largest values of groups of up to a warp's threads, at least twice RANKS groups if there are threads enough.
            bound[0] = values[0]
            for e in T.unroll(1, VALUES):
                bound[0] = T.max(bound[0], values[e])
            shift[0] = 0
            for step in T.unroll(5):
                if (4 << step) * RANKS <= active:
                    bound[0] = T.max(bound[0], T.shfl_xor(bound[0], 1 << step))
                    shift[0] = step + 1
            groups = T.min((active + (1 << shift[0]) - 1) >> shift[0], GROUPS)
            key_of(key, bound[0])
            if tid < active and tid & ((1 << shift[0]) - 1) == 0:
                maxima[tid >> shift[0]] = key[0]
            for i in T.unroll(T.ceildiv(GROUPS, threads)):
                if groups <= i * threads + tid and i * threads + tid < GROUPS:
                    maxima[i * threads + tid] = LOWEST_KEY
            T.sync_threads()
            for i in T.serial(T.ceildiv(groups * RANKED_BY, threads)):
                index = (i * threads + tid) // RANKED_BY
                key[0] = maxima[T.min(index, GROUPS - 1)]
                rank(maxima, groups, index, key, place, others, tid)
                if tid % RANKED_BY == 0 and index < groups and place[0] == RANKS - 1:
                    cut[0] = key[0]
            T.sync_threads()
            # -inf is never kept: lists end with it.
            bound[0] = T.max(T.reinterpret(flip(cut[0]), T.float32), T.float32(-FINITE))
            keep_values(values, bound, kept, taken, place, total, lane, VALUES, ROOM, True)
            T.sync_threads()
            total[0] = taken[0]
            if total[0] > ROOM or share > VALUES * threads:
                total[0] = -1
            for i in T.serial(T.ceildiv(RANKS, threads)):
                if total[0] <= i * threads + tid and i * threads + tid < RANKS:
                    lists[(i * threads + tid) * BLOCKS + block] = T.if_then_else(
                        total[0] < 0 and i * threads + tid == RANKS - 1, UNKNOWN, LOWEST_KEY
                    )
            for i in T.serial(T.ceildiv(T.max(total[0], 0) * RANKED_BY, threads)):
                index = (i * threads + tid) // RANKED_BY
                key[0] = kept[T.min(index, ROOM - 1)]
                rank(kept, total[0], index, key, place, others, tid)
                if tid % RANKED_BY == 0 and index < total[0] and place[0] < RANKS:
                    lists[place[0] * BLOCKS + block] = key[0]
            T.sync_grid()
            for u in T.unroll(LOADS):
                if (u * threads + tid) * 4 < LISTS:
                    for v in T.vectorized(4):
                        listed[u * 4 + v] = lists[(u * threads + tid) * 4 + v]
                else:
                    for v in T.unroll(4):
                        listed[u * 4 + v] = T.min_value(T.int32)
            for u in T.unroll(LOADS):
                if (u * threads + tid) * 4 < LISTS:
                    for v in T.vectorized(4):
                        every[(u * threads + tid) * 4 + v] = listed[u * 4 + v]
            T.sync_threads()
            # Nothing outside the lists is above the largest of their last entries; k values have to reach it.
            least[0] = every[(RANKS - 1) * BLOCKS + lane]
            for q in T.unroll(1, COLUMNS):
                least[0] = T.max(least[0], every[(RANKS - 1) * BLOCKS + q * 32 + lane])
            least[0] = T.warp_reduce_max(least[0])
            total[0] = 0
            for u in T.unroll(LOADS * 4):
                total[0] += T.cast(listed[u] >= least[0], T.int32)
            total[0] = T.warp_reduce_sum(total[0])
            if lane == 0:
                total[0] = add_shared(reached[0], total[0])
            # Every warp takes each WARPS-th entry of the block's list.
            for i in T.serial(T.ceildiv(RANKS, WARPS)):
                if i * WARPS + warp < RANKS:
                    key[0] = every[(i * WARPS + warp) * BLOCKS + block]
                    if key[0] >= least[0]:
                        search(every, position, limit, key[0], block, lane, RANKS, BLOCKS)
                        for q in T.unroll(COLUMNS):
                            if q * 32 + lane == block:
                                position[q] = i * WARPS + warp
                        for q in T.unroll(1, COLUMNS):
                            position[0] += position[q]
                        place[0] = T.warp_reduce_sum(position[0])
                        if lane == 0 and place[0] < k:
                            y[place[0]] = T.reinterpret(flip(key[0]), T.float32)
            T.sync_threads()
            if least[0] == UNKNOWN or reached[0] < k:  # then what has been written is written again
                least[0] = T.min_value(T.int32)  # the k-th largest value as an integer, from the highest bit down
                for bit in T.serial(32):
                    total[0] = 0
                    for i in T.serial(T.ceildiv(n, BLOCKS * threads)):
                        if (i * BLOCKS + block) * threads + tid < n:
                            key_of(key, x[(i * BLOCKS + block) * threads + tid])
                            if key[0] >= least[0] ^ (1 << (31 - bit)):
                                total[0] += 1
                    total[0] = T.warp_reduce_sum(total[0])
                    if lane == 0:
                        T.atomic_add(state[bit], total[0])
                    T.sync_grid()
                    if state[bit] >= k:
                        least[0] = least[0] ^ (1 << (31 - bit))
                for i in T.serial(T.ceildiv(n, BLOCKS * threads)):
                    if (i * BLOCKS + block) * threads + tid < n:
                        value[0] = x[(i * BLOCKS + block) * threads + tid]
                        key_of(key, value[0])
                        if key[0] > least[0]:
                            place[0] = T.atomic_add(state[32], 1, return_prev=True)
                            larger[place[0]] = value[0]
                T.sync_grid()
                total[0] = state[32]
                for i in T.serial(T.ceildiv(k, BLOCKS * threads)):
                    index = (i * BLOCKS + block) * threads + tid
                    if index < total[0]:
                        value[0] = larger[index]
                        place[0] = 0
                        for j in T.serial(total[0]):
                            if larger[j] > value[0] or (larger[j] == value[0] and j < index):
                                place[0] += 1
                        y[place[0]] = value[0]
                    elif index < k:
                        y[index] = T.reinterpret(flip(least[0]), T.float32)

    return select_long


def run(x: torch.Tensor, N: int, k: int, *, SHORT: int, threads: int) -> torch.Tensor:
    """Return the k largest of x [N], in descending order; up to SHORT values are one block's."""
    y = torch.empty(k, dtype=x.dtype, device=x.device)
    width = 4 if x.data_ptr() % 16 == 0 else 1
    if N <= SHORT:
        short_kernel(max(4, _power(N / threads)), width, threads)(x, y)
        return y
    # One block per multiprocessor, so that all of them are resident.
    blocks = min(MOST_BLOCKS, max(32, 1 << (multiprocessors(x.device).bit_length() - 1)))
    values = min(MOST_VALUES, max(4, _power(N / (blocks * threads))))
    # The largest k values are spread over the shares as by throwing dice: k / blocks, and four standard deviations. A k too
    # large for the longest lists goes bit by bit.
    ranks = min(MOST_RANKS, max(8, _power(k / blocks + 4 * math.sqrt(k / blocks) + 4)))
    lists = torch.empty(ranks * blocks, dtype=torch.int32, device=x.device)
    state = torch.empty(33, dtype=torch.int32, device=x.device)
    long_kernel(blocks, ranks, values, width, threads)(x, lists, state, torch.empty_like(y), y)
    return y


def _power(number: float) -> int:
    """The least power of two that is not below `number`."""
    return 1 << max(0, math.ceil(number) - 1).bit_length()


def default(case: Case) -> Config:
    # Some 16 to 32 values per thread: instructions, not loads, are what the time goes to, and few warps soon meet. Where many
    # values are kept, more threads take them on.
    if case["N"] <= 1 << 14:
        threads = 256 if case["N"] <= 1 << 12 else 512
        return {"SHORT": 1 << 14, "threads": threads if case["k"] <= 256 else threads * 2}
    # Long lists are searched by more warps.
    return {"SHORT": 1 << 14, "threads": 256 if case["N"] <= 1 << 18 and case["k"] <= 256 else 512}


def space(case: Case) -> list[Config]:
    return [
        {"SHORT": short, "threads": threads}
        for short in (1 << 12, 1 << 14)
        for threads in (128, 256, 512, 1024)
        if case["N"] > short or case["N"] <= MOST_VALUES * threads
    ]


KERNEL = Kernel(run=run, default=default, space=space)
