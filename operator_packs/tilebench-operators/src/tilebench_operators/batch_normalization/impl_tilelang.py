"""Batch normalization in TileLang, one launch: partial sums, a barrier of the whole grid, statistics, application.

There are no more blocks than multiprocessors, so all are resident and may wait for one another. A block owns a stripe of
channels of every parts-th chunk of rows. It keeps most of its part of x on chip across the barrier, in shared memory and in
registers: on an H200 19,000 x 1,024 fp16. What is beyond that passes through a ring of slots, and is read again
afterwards, last rows first: these are still in the L2 cache.

Sums are two-level and free of atomics, so results repeat bit by bit. They are taken of x[n, c] - x[0, c]: a large mean
or a tiny variance then cancels no digits in the difference of the mean square and the squared mean.
Layouts are given by hand: a thread keeps its channels from row to row, VEC neighbouring ones, and holds what belongs to
these channels in registers of its own. In shared memory, too, it reads only what it has loaded itself: chunks need no
barriers.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors
from tilelang.contrib.nvcc import get_target_compute_version
from tvm.target import Target

from tilebench_operators._tilelang_rows import vector_width

UNROLL = 8  # partials that a thread loads at a time
# A thread's registers for x, of the 128 that 512 threads have. fp32 has half the sums per thread; the compiler keeps some
# bf16 as single elements, in a register each.
HELD_REGISTERS = {"fp16": 48, "bf16": 32, "fp32": 64}
PASSES = {
    # The barriers in the kernel are enough. The compiler would add two per chunk.
    tilelang.PassConfigKey.TL_DISABLE_THREAD_STORAGE_SYNC: True,
    # As seen in the generated code: nvcc would split 16-byte stores of two or more rows into 4-byte ones.
    tilelang.PassConfigKey.TL_ENABLE_LOWER_LDGSTG: True,
}


def shared_memory() -> int:
    """Bytes of shared memory that a block may have on the GPU that a kernel factory builds for."""
    target = Target.current(allow_none=True)
    if target is None:
        return int(torch.cuda.get_device_properties().shared_memory_per_block_optin)
    return {"8.0": 163, "9.0": 227, "10.0": 227}.get(get_target_compute_version(target), 99) * 1024


def layout(REPEAT: int, LANES: int, BLOCK_C: int, VEC: int) -> T.Fragment:
    """A tile of REPEAT·LANES rows: LANES of them lie side by side, and their threads hold REPEAT such rows."""
    return T.Fragment(
        (REPEAT, LANES, BLOCK_C), forward_fn=lambda r, i, j: (i * (BLOCK_C // VEC) + j // VEC, r * VEC + j % VEC)
    )


@tilelang.jit(pass_configs=PASSES)
def normalize_kernel(dtype: torch.dtype, BLOCK_C: int, VEC: int, REPEAT: int, AHEAD: int, HELD: int, threads: int):
    """One block, BLOCK_C channels of a part of the rows, in chunks of REPEAT rows and VEC channels per thread; VEC divides C.

    Shared memory has room for KEPT chunks, and registers for HELD. Loads run AHEAD chunks ahead. A launch computes
    `stripes` stripes of channels from `first` on; partials have room for all of x.
    """
    N, C, tiles, parts = T.dynamic("N"), T.dynamic("C"), T.dynamic("tiles"), T.dynamic("parts")
    FOLD = threads // BLOCK_C
    LANES = FOLD * VEC
    ROWS = REPEAT * LANES
    HALVES = FOLD // 2
    KEPT = (shared_memory() - 4 * threads * (max(VEC, 2) + 1)) // (REPEAT * threads * VEC * dtype.itemsize)
    RING = KEPT - AHEAD  # the first of the slots that are used again
    held_layout = layout(HELD * REPEAT, LANES, BLOCK_C, VEC)
    rows_layout, lanes_layout = layout(REPEAT, LANES, BLOCK_C, VEC), layout(1, LANES, BLOCK_C, VEC)

    def load(x, kept, slot, row, c):
        """Start to load a chunk of x, from `row` and channel `c` on, into its slot."""
        source, place = x[row : row + ROWS, c : c + BLOCK_C], kept[slot * ROWS : slot * ROWS + ROWS, 0:BLOCK_C]
        return T.async_copy(source, place) if VEC > 1 else T.copy(source, place)  # single ones are too narrow

    @T.prim_func
    def batch_normalize(
        x: T.Tensor((N, C), dtype),
        gamma: T.Tensor((C,), dtype),
        beta: T.Tensor((C,), dtype),
        partials: T.Tensor((tiles, parts, 2, BLOCK_C), T.float32),
        y: T.Tensor((N, C), dtype),
        inverse_n: T.float32,
        eps: T.float32,
        first: T.int32,
        stripes: T.int32,
    ):
        with T.Kernel(stripes, parts, threads=threads) as (stripe, part):
            T.assume(C % VEC == 0)  # so that every row starts at a multiple of VEC, and loads are VEC wide
            kept = T.alloc_shared((KEPT * ROWS, BLOCK_C), dtype)
            work = T.alloc_shared((max(VEC, 2) * FOLD, BLOCK_C), T.float32)
            totals = T.alloc_shared((HALVES, 2, BLOCK_C), T.float32)
            held = T.alloc_fragment((HELD * REPEAT, LANES, BLOCK_C), dtype)
            values = T.alloc_fragment((REPEAT, LANES, BLOCK_C), dtype)
            origin = T.alloc_fragment((1, LANES, BLOCK_C), dtype)
            weight = T.alloc_fragment((1, LANES, BLOCK_C), dtype)
            bias = T.alloc_fragment((1, LANES, BLOCK_C), dtype)
            pivot = T.alloc_fragment((1, LANES, BLOCK_C), T.float32)
            sums = T.alloc_fragment((1, LANES, BLOCK_C), T.float32)
            squares = T.alloc_fragment((1, LANES, BLOCK_C), T.float32)
            mean = T.alloc_fragment((1, LANES, BLOCK_C), T.float32)
            scale = T.alloc_fragment((1, LANES, BLOCK_C), T.float32)
            folded_sums = T.alloc_fragment((FOLD, BLOCK_C), T.float32)
            folded_squares = T.alloc_fragment((FOLD, BLOCK_C), T.float32)
            total = T.alloc_fragment((2, BLOCK_C), T.float32)
            part_sums = T.alloc_fragment((HALVES, 2, BLOCK_C), T.float32)
            T.annotate_layout({held: held_layout, values: rows_layout})
            T.annotate_layout({origin: lanes_layout, weight: lanes_layout, bias: lanes_layout, pivot: lanes_layout})
            T.annotate_layout({sums: lanes_layout, squares: lanes_layout, mean: lanes_layout, scale: lanes_layout})
            chunks, passing = T.alloc_var(T.int32), T.alloc_var(T.int32)
            row, slot, next_slot = T.alloc_var(T.int32), T.alloc_var(T.int32), T.alloc_var(T.int32)
            stripe_c = (first + stripe) * BLOCK_C
            T.assume(stripe_c >= 0)
            step_rows = parts * ROWS
            chunks = T.ceildiv(T.ceildiv(N, ROWS) - part, parts)
            passing = T.max(T.min(chunks, KEPT), chunks - HELD)  # through shared memory; the others are held

            # Sums. All loads of held chunks are under way while the others pass.
            for chunk in T.unroll(AHEAD):
                if chunk < passing:
                    load(x, kept, chunk, (chunk * parts + part) * ROWS, stripe_c)
                else:
                    T.ptx_commit_group()
            for r, i, j in T.Parallel(1, LANES, BLOCK_C):
                c = stripe_c + j
                origin[r, i, j] = T.if_then_else(c < C, x[0, c], 0)
                weight[r, i, j] = T.if_then_else(c < C, gamma[c], 0)
                bias[r, i, j] = T.if_then_else(c < C, beta[c], 0)
            if passing < chunks:
                row = (passing * parts + part) * ROWS
                T.assume(row >= 0)
                for r, i, j in T.Parallel(HELD * REPEAT, LANES, BLOCK_C):
                    n, c = row + r // REPEAT * step_rows + r % REPEAT * LANES + i, stripe_c + j
                    held[r, i, j] = T.if_then_else(n < N and c < C, x[n, c], 0)
            for r, i, j in T.Parallel(1, LANES, BLOCK_C):
                pivot[r, i, j] = T.cast(origin[r, i, j], T.float32)
            T.clear(sums)
            T.clear(squares)
            row = part * ROWS
            slot = 0
            next_slot = AHEAD
            for chunk in T.serial(passing):
                T.ptx_wait_group(AHEAD - 1)
                for r, i, j in T.Parallel(REPEAT, LANES, BLOCK_C):
                    values[r, i, j] = kept[slot * ROWS + r * LANES + i, j]
                for r in T.unroll(REPEAT):
                    for i, j in T.Parallel(LANES, BLOCK_C):
                        inside = row + r * LANES + i < N
                        shifted = T.if_then_else(inside, T.cast(values[r, i, j], T.float32) - pivot[0, i, j], 0)
                        sums[0, i, j] += shifted
                        squares[0, i, j] += shifted * shifted
                if chunk + AHEAD < passing:
                    T.assume(next_slot >= 0)
                    T.assume(next_slot < KEPT)
                    load(x, kept, next_slot, row + AHEAD * step_rows, stripe_c)
                else:
                    T.ptx_commit_group()
                row += step_rows
                slot = T.if_then_else(slot + 1 < KEPT, slot + 1, RING)
                next_slot = T.if_then_else(next_slot + 1 < KEPT, next_slot + 1, RING)
            if passing < chunks:
                row = (passing * parts + part) * ROWS
                for r in T.unroll(HELD * REPEAT):
                    for i, j in T.Parallel(LANES, BLOCK_C):
                        inside = row + r // REPEAT * step_rows + r % REPEAT * LANES + i < N
                        shifted = T.if_then_else(inside, T.cast(held[r, i, j], T.float32) - pivot[0, i, j], 0)
                        sums[0, i, j] += shifted
                        squares[0, i, j] += shifted * shifted

            # A channel's sums over LANES threads: VEC of them by each of FOLD threads, and these by one.
            for r, i, j in T.Parallel(1, LANES, BLOCK_C):
                work[i, j] = sums[r, i, j]
            T.sync_threads()
            T.clear(folded_sums)
            T.clear(folded_squares)
            for k in T.unroll(VEC):
                for f, j in T.Parallel(FOLD, BLOCK_C):
                    folded_sums[f, j] += work[k * FOLD + f, j]
            T.sync_threads()
            for r, i, j in T.Parallel(1, LANES, BLOCK_C):
                work[i, j] = squares[r, i, j]
            T.sync_threads()
            for k in T.unroll(VEC):
                for f, j in T.Parallel(FOLD, BLOCK_C):
                    folded_squares[f, j] += work[k * FOLD + f, j]
            T.sync_threads()
            for f, j in T.Parallel(FOLD, BLOCK_C):
                work[f, j] = folded_sums[f, j]
                work[FOLD + f, j] = folded_squares[f, j]
            T.sync_threads()
            T.clear(total)
            for f in T.unroll(FOLD):
                for q, j in T.Parallel(2, BLOCK_C):
                    total[q, j] += work[q * FOLD + f, j]
            for q, j in T.Parallel(2, BLOCK_C):
                partials[first + stripe, part, q, j] = total[q, j]
            T.sync_grid()

            # Statistics: each block of a stripe adds the partials by itself, which saves a second barrier.
            T.clear(part_sums)
            for step in T.serial(T.ceildiv(parts, UNROLL * HALVES)):
                for u in T.unroll(UNROLL):
                    for h, q, j in T.Parallel(HALVES, 2, BLOCK_C):
                        p = (step * UNROLL + u) * HALVES + h
                        part_sums[h, q, j] += T.if_then_else(p < parts, partials[first + stripe, p, q, j], 0)
            for h, q, j in T.Parallel(HALVES, 2, BLOCK_C):
                totals[h, q, j] = part_sums[h, q, j]
            T.sync_threads()
            T.clear(mean)
            T.clear(scale)
            for h in T.unroll(HALVES):
                for r, i, j in T.Parallel(1, LANES, BLOCK_C):
                    mean[r, i, j] += totals[h, 0, j]
                    scale[r, i, j] += totals[h, 1, j]
            for r, i, j in T.Parallel(1, LANES, BLOCK_C):
                shift = mean[r, i, j] * inverse_n
                variance = T.max(scale[r, i, j] * inverse_n - shift * shift, 0)
                mean[r, i, j] = pivot[r, i, j] + shift
                scale[r, i, j] = T.rsqrt(variance + eps) * T.cast(weight[r, i, j], T.float32)

            # Application, from the last chunk that passed down. As slots become free, chunks that are gone are loaded again.
            row = ((passing - 1) * parts + part) * ROWS
            slot = T.if_then_else(passing <= KEPT, passing - 1, RING + (passing - 1 - KEPT) % AHEAD)
            for back in T.serial(passing):
                T.ptx_wait_group(AHEAD - 1)
                for r, i, j in T.Parallel(REPEAT, LANES, BLOCK_C):
                    values[r, i, j] = kept[slot * ROWS + r * LANES + i, j]
                for r, i, j in T.Parallel(REPEAT, LANES, BLOCK_C):
                    centred = T.cast(values[r, i, j], T.float32) - mean[0, i, j]
                    values[r, i, j] = T.cast(centred * scale[0, i, j] + T.cast(bias[0, i, j], T.float32), dtype)
                for r, i, j in T.Parallel(REPEAT, LANES, BLOCK_C):
                    n, c = row + r * LANES + i, stripe_c + j
                    if n < N and c < C:
                        y[n, c] = values[r, i, j]
                if passing - back > KEPT:  # the chunk AHEAD before this one was in the same slot
                    T.assume(slot >= 0)
                    T.assume(slot < KEPT)
                    load(x, kept, slot, row - AHEAD * step_rows, stripe_c)
                else:
                    T.ptx_commit_group()
                row -= step_rows
                slot = T.if_then_else(slot == RING and passing - back > KEPT, KEPT - 1, slot - 1)
            if passing < chunks:
                row = (passing * parts + part) * ROWS
                T.assume(row >= 0)
                for r, i, j in T.Parallel(HELD * REPEAT, LANES, BLOCK_C):
                    centred = T.cast(held[r, i, j], T.float32) - mean[0, i, j]
                    held[r, i, j] = T.cast(centred * scale[0, i, j] + T.cast(bias[0, i, j], T.float32), dtype)
                for r, i, j in T.Parallel(HELD * REPEAT, LANES, BLOCK_C):
                    n, c = row + r // REPEAT * step_rows + r % REPEAT * LANES + i, stripe_c + j
                    if n < N and c < C:
                        y[n, c] = held[r, i, j]

    return batch_normalize


def run(
    x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, N: int, C: int, eps: float,
    *, BLOCK_C: int, REPEAT: int, AHEAD: int, HELD: int, threads: int,
) -> torch.Tensor:  # fmt: skip
    """Return the batch normalization of x [N, C] with gamma [C] and beta [C]; y [N, C] in x's dtype.

    Where there are more stripes of channels than multiprocessors, there are several launches.
    """
    y = torch.empty_like(x)
    VEC = vector_width(C, x.element_size())
    blocks = multiprocessors(x.device)
    tiles = -(-C // BLOCK_C)
    stripes = min(tiles, blocks)
    parts = min(-(-N // (REPEAT * threads * VEC // BLOCK_C)), blocks // stripes)
    partials = torch.empty((tiles, parts, 2, BLOCK_C), dtype=torch.float32, device=x.device)
    kernel = normalize_kernel(x.dtype, BLOCK_C, VEC, REPEAT, AHEAD, HELD, threads)
    for first in range(0, tiles, stripes):
        kernel(x, gamma, beta, partials, y, 1 / N, eps, first, min(stripes, tiles - first))
    return y


def default(case: Case) -> Config:
    # Eight stripes of 1,024 channels leave 16 parts, few enough that every block adds them by itself. 64 KB are on their
    # way to each multiprocessor.
    return {"BLOCK_C": 128, "REPEAT": 2, "AHEAD": 4, "HELD": HELD_REGISTERS[case.dtype] // 8, "threads": 512}


def space(case: Case) -> list[Config]:
    registers = HELD_REGISTERS[case.dtype]
    return [
        {"BLOCK_C": block_c, "REPEAT": repeat, "AHEAD": ahead, "HELD": held // (4 * repeat), "threads": threads}
        for block_c in (64, 128, 256)
        for threads, repeat, ahead in ((512, 1, 8), (512, 2, 3), (512, 2, 4), (512, 2, 6), (256, 2, 8))
        for held in (registers * 512 // threads, registers * 256 // threads)
        if 2 * block_c <= threads
    ]


KERNEL = Kernel(run=run, default=default, space=space)
