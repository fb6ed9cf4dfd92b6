"""Batch normalization in TileLang, three launches: partial sums of row groups, statistics per channel, application.

Sums are two-level and free of atomics, so results repeat bit by bit. They are taken of x[n, c] - x[0, c]: a large mean
or a tiny variance then cancels no digits in the difference of the mean square and the squared mean.
Layouts are given by hand: a thread keeps its channels from row to row, VEC neighbouring ones, and so holds what
belongs to these channels in registers of its own.

Each launch starts while the one before it still runs (programmatic dependent launch). As many blocks of the last as then
find room load their rows of x together with the first launch, and keep them in registers until the statistics are ready.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel, multiprocessors

from tilebench_operators._tilelang_dependent import dependent_launches
from tilebench_operators._tilelang_rows import vector_width

STATISTICS_THREADS = 128
STATISTICS_ROW = 4  # threads per row of partials: 64 bytes; narrow, so that 1024 channels make 64 blocks
STATISTICS_REPEAT = 2  # rows per thread that are loaded at a time


def layout(REPEAT: int, LANES: int, BLOCK_C: int, VEC: int) -> T.Fragment:
    """A tile of REPEAT·LANES rows: LANES of them lie side by side, and their threads hold REPEAT such rows."""
    return T.Fragment(
        (REPEAT, LANES, BLOCK_C), forward_fn=lambda r, i, j: (i * (BLOCK_C // VEC) + j // VEC, r * VEC + j % VEC)
    )


@tilelang.jit
def partial_kernel(dtype: torch.dtype, REPEAT: int, LANES: int, BLOCK_C: int, VEC: int):
    """One block, one group of rows of BLOCK_C channels; VEC divides C.

    The group is every parts-th block of REPEAT·LANES rows, so that all blocks together walk down x side by side.
    """
    N, C, parts = T.dynamic("N"), T.dynamic("C"), T.dynamic("parts")
    ROWS = REPEAT * LANES
    rows_layout, lanes_layout = layout(REPEAT, LANES, BLOCK_C, VEC), layout(1, LANES, BLOCK_C, VEC)
    dependent = dependent_launches()

    @T.prim_func
    def batch_partial(x: T.Tensor((N, C), dtype), partials: T.Tensor((2, parts, C), T.float32)):
        with T.Kernel(T.ceildiv(C, BLOCK_C), parts, threads=LANES * BLOCK_C // VEC) as (bc, part):
            T.assume(C % VEC == 0)  # so that every row starts at a multiple of VEC, and loads are VEC wide
            if dependent:
                T.pdl_trigger()
            shifted = T.alloc_fragment((REPEAT, LANES, BLOCK_C), T.float32)
            pivot = T.alloc_fragment((1, LANES, BLOCK_C), T.float32)
            sums = T.alloc_fragment((1, LANES, BLOCK_C), T.float32)
            squares = T.alloc_fragment((1, LANES, BLOCK_C), T.float32)
            lane_sums = T.alloc_fragment((1, BLOCK_C), T.float32)
            lane_squares = T.alloc_fragment((1, BLOCK_C), T.float32)
            T.annotate_layout({shifted: rows_layout, pivot: lanes_layout, sums: lanes_layout, squares: lanes_layout})
            for r, i, j in T.Parallel(1, LANES, BLOCK_C):
                c = bc * BLOCK_C + j
                pivot[r, i, j] = T.if_then_else(c < C, T.cast(x[0, c], T.float32), 0)
            T.clear(sums)
            T.clear(squares)
            for step in T.serial(T.ceildiv(N, ROWS * parts)):
                for r, i, j in T.Parallel(REPEAT, LANES, BLOCK_C):
                    n, c = (step * parts + part) * ROWS + r * LANES + i, bc * BLOCK_C + j
                    shifted[r, i, j] = T.if_then_else(n < N and c < C, T.cast(x[n, c], T.float32) - pivot[0, i, j], 0)
                for r in T.unroll(REPEAT):
                    for i, j in T.Parallel(LANES, BLOCK_C):
                        sums[0, i, j] += shifted[r, i, j]
                        squares[0, i, j] += shifted[r, i, j] * shifted[r, i, j]
            T.reduce_sum(sums, lane_sums, dim=1, batch=VEC)  # the VEC sums of a thread share their barriers
            T.reduce_sum(squares, lane_squares, dim=1, batch=VEC)
            for j in T.Parallel(BLOCK_C):
                if bc * BLOCK_C + j < C:
                    partials[0, part, bc * BLOCK_C + j] = lane_sums[0, j]
                    partials[1, part, bc * BLOCK_C + j] = lane_squares[0, j]

    return batch_partial


@tilelang.jit
def statistics_kernel(dtype: torch.dtype, VEC: int):
    """One block, a few channels: adds the partials; statistics [2, C] are mean and 1/deviation. VEC divides C."""
    N, C, parts = T.dynamic("N"), T.dynamic("C"), T.dynamic("parts")
    BLOCK_C, LANES, REPEAT = STATISTICS_ROW * VEC, STATISTICS_THREADS // STATISTICS_ROW, STATISTICS_REPEAT
    ROWS = REPEAT * LANES
    rows_layout, lanes_layout = layout(REPEAT, LANES, BLOCK_C, VEC), layout(1, LANES, BLOCK_C, VEC)
    dependent = dependent_launches()

    @T.prim_func
    def batch_statistics(
        x: T.Tensor((N, C), dtype),
        partials: T.Tensor((2, parts, C), T.float32),
        statistics: T.Tensor((2, C), T.float32),
        eps: T.float32,
    ):
        with T.Kernel(T.ceildiv(C, BLOCK_C), threads=STATISTICS_THREADS) as bc:
            T.assume(C % VEC == 0)
            if dependent:
                T.pdl_trigger()
                T.pdl_sync()
            part_sums = T.alloc_fragment((REPEAT, LANES, BLOCK_C), T.float32)
            part_squares = T.alloc_fragment((REPEAT, LANES, BLOCK_C), T.float32)
            sums = T.alloc_fragment((1, LANES, BLOCK_C), T.float32)
            squares = T.alloc_fragment((1, LANES, BLOCK_C), T.float32)
            shift = T.alloc_fragment((1, BLOCK_C), T.float32)
            variance = T.alloc_fragment((1, BLOCK_C), T.float32)
            T.annotate_layout(
                {part_sums: rows_layout, part_squares: rows_layout, sums: lanes_layout, squares: lanes_layout}
            )
            T.clear(sums)
            T.clear(squares)
            for step in T.serial(T.ceildiv(parts, ROWS)):
                for r, i, j in T.Parallel(REPEAT, LANES, BLOCK_C):
                    part, c = step * ROWS + r * LANES + i, bc * BLOCK_C + j
                    part_sums[r, i, j] = T.if_then_else(part < parts and c < C, partials[0, part, c], 0)
                    part_squares[r, i, j] = T.if_then_else(part < parts and c < C, partials[1, part, c], 0)
                for r in T.unroll(REPEAT):
                    for i, j in T.Parallel(LANES, BLOCK_C):
                        sums[0, i, j] += part_sums[r, i, j]
                        squares[0, i, j] += part_squares[r, i, j]
            T.reduce_sum(sums, shift, dim=1, batch=VEC)
            T.reduce_sum(squares, variance, dim=1, batch=VEC)
            for j in T.Parallel(BLOCK_C):
                shift[0, j] = shift[0, j] / T.cast(N, T.float32)
                variance[0, j] = T.max(variance[0, j] / T.cast(N, T.float32) - shift[0, j] * shift[0, j], 0)
            for j in T.Parallel(BLOCK_C):
                c = bc * BLOCK_C + j
                if c < C:
                    statistics[0, c] = T.cast(x[0, c], T.float32) + shift[0, j]
                    statistics[1, c] = T.rsqrt(variance[0, j] + eps)

    return batch_statistics


@tilelang.jit
def apply_kernel(dtype: torch.dtype, ROWS: int, VEC: int, threads: int):
    """One block, ROWS rows of VEC channels per thread; VEC divides C.

    About `early` blocks of rows are loaded while the first launch runs.
    """
    N, C = T.dynamic("N"), T.dynamic("C")
    BLOCK_C = VEC * threads
    rows_layout, row_layout = layout(ROWS, 1, BLOCK_C, VEC), layout(1, 1, BLOCK_C, VEC)
    dependent = dependent_launches()

    @T.prim_func
    def batch_apply(
        x: T.Tensor((N, C), dtype),
        gamma: T.Tensor((C,), dtype),
        beta: T.Tensor((C,), dtype),
        statistics: T.Tensor((2, C), T.float32),
        y: T.Tensor((N, C), dtype),
        early: T.int32,
    ):
        with T.Kernel(T.ceildiv(C, BLOCK_C), T.ceildiv(N, ROWS), threads=threads) as (bc, bn):
            T.assume(C % VEC == 0)
            values = T.alloc_fragment((ROWS, 1, BLOCK_C), dtype)
            mean = T.alloc_fragment((1, 1, BLOCK_C), T.float32)
            scale = T.alloc_fragment((1, 1, BLOCK_C), T.float32)
            shift = T.alloc_fragment((1, 1, BLOCK_C), T.float32)
            T.annotate_layout({values: rows_layout, mean: row_layout, scale: row_layout, shift: row_layout})
            # The early ones from the first row down, as the first launch does. The others from the last row up: these were
            # read last by the first launch, and are still in the L2 cache.
            first = T.alloc_var(T.int32)
            first = T.if_then_else(bn < early, bn, T.ceildiv(N, ROWS) - 1 - (bn - early)) * ROWS
            T.assume(first >= 0)
            for r, i, j in T.Parallel(ROWS, 1, BLOCK_C):
                n, c = first + r + i, bc * BLOCK_C + j
                values[r, i, j] = T.if_then_else(n < N and c < C, x[n, c], 0)
            if dependent:
                T.pdl_sync()
            for r, i, j in T.Parallel(1, 1, BLOCK_C):
                c = bc * BLOCK_C + j
                mean[r, i, j] = T.if_then_else(c < C, statistics[0, c], 0)
                scale[r, i, j] = T.if_then_else(c < C, statistics[1, c] * T.cast(gamma[c], T.float32), 0)
                shift[r, i, j] = T.if_then_else(c < C, T.cast(beta[c], T.float32), 0)
            for r, i, j in T.Parallel(ROWS, 1, BLOCK_C):
                n, c = first + r + i, bc * BLOCK_C + j
                if n < N and c < C:
                    centred = T.cast(values[r, i, j], T.float32) - mean[0, i, j]
                    y[n, c] = T.cast(centred * scale[0, i, j] + shift[0, i, j], dtype)

    return batch_apply


def run(
    x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, N: int, C: int, eps: float,
    *, ROWS: int, BLOCK_C: int, PER_SM: int, threads: int, APPLY_ROWS: int, APPLY_THREADS: int,
) -> torch.Tensor:  # fmt: skip
    """Return the batch normalization of x [N, C] with gamma [C] and beta [C]; y [N, C] in x's dtype."""
    y = torch.empty_like(x)
    VEC = vector_width(C, x.element_size())
    row_threads = BLOCK_C * x.element_size() // 16  # where loads are one element wide, the tile is narrower as well
    lanes = threads // row_threads
    tiles = -(-C // (row_threads * VEC))
    parts = max(1, min(-(-N // ROWS), PER_SM * multiprocessors(x.device) // tiles))
    partials = torch.empty((2, parts, C), dtype=torch.float32, device=x.device)
    statistics = torch.empty((2, C), dtype=torch.float32, device=x.device)
    partial_kernel(x.dtype, ROWS // lanes, lanes, row_threads * VEC, VEC)(x, partials)
    statistics_kernel(x.dtype, vector_width(C, 4))(x, partials, statistics, eps)
    early = 256 // APPLY_THREADS * multiprocessors(x.device) // -(-C // (VEC * APPLY_THREADS))
    apply_kernel(x.dtype, APPLY_ROWS, VEC, APPLY_THREADS)(x, gamma, beta, statistics, y, early)
    return y


def default(case: Case) -> Config:
    # Partial sums: 512 bytes of a row per tile, 8 KB in all, four 16-byte loads for each of 128 threads.
    partial = {"ROWS": 16, "BLOCK_C": 512 // case.dtype_size, "PER_SM": 4, "threads": 128}
    return {**partial, "APPLY_ROWS": 8, "APPLY_THREADS": 128}


def space(case: Case) -> list[Config]:
    return [
        {
            **default(case),
            "ROWS": rows,
            "PER_SM": per_sm,
            "threads": threads,
            "APPLY_ROWS": apply_rows,
            "APPLY_THREADS": apply_threads,
        }
        for rows, threads in ((8, 128), (16, 128), (16, 256), (32, 256))
        for per_sm in (2, 4)
        for apply_rows in (4, 8)
        for apply_threads in (64, 128)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
