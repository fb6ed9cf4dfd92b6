"""7×7 blur in TileLang: fp16 as a matrix product, fp32 on the vector units.

fp16: a block of 8×8 results is the product of its window, 14×16 pixels in a row of a matrix, and one matrix that holds the
weights in a band. That is 5.2 times the multiplications, on units that are 16 times as fast; sums are fp32.

fp32: a thread walks down a strip of eight columns with seven output rows open in registers. Every input row is loaded once
and added, seven times weighted, to the seven output rows that it touches; then the oldest one is complete and stored. Four
loads of four columns give a thread the fourteen columns that it needs, which makes half a load per pixel instead of 49. All
49 weights stay in registers. The fp32 units bound it. Other kernel sizes, and widths that are no multiple of four (edge
cases only), take one load per tap.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

LANE = 4  # columns of one load
LOADS = 4  # loads of a thread and row in the fp32 kernel, of which the two in the middle are the columns that it owns
OWN = 8
UNCHECKED = {tilelang.PassConfigKey.TL_DISABLE_SAFE_MEMORY_ACCESS: True}  # every index is in range


@T.macro
def fetch(x, raw, row, quad, rows, width):
    """raw [4, 4]: row `row` of four quads, of which `quad` is the second; x [rows, width, 4]. Those outside are replaced."""
    for g in T.unroll(LOADS):
        line = T.max(T.min(row, rows - 1), 0) * width + T.max(T.min(quad + g - 1, width - 1), 0)
        for v in T.vectorized(LANE):
            raw[g, v] = x[line, v]


@tilelang.jit(pass_configs=UNCHECKED)
def strip_kernel(dtype: torch.dtype, threads: int):
    """One thread, ROWS rows of eight columns; x and out [rows, cols], weight [49].

    cols is a multiple of four, and images are cut into quads, so that the compiler knows that they are aligned.
    """
    all_quads = T.dynamic("all_quads")

    @T.prim_func
    def blur_strips(
        x: T.Tensor((all_quads, LANE), dtype),
        weight: T.Tensor((49,), dtype),
        out: T.Tensor((all_quads, LANE), dtype),
        rows: T.int32,
        width: T.int32,
        ROWS: T.int32,
    ):
        with T.Kernel(T.ceildiv(T.ceildiv(rows, ROWS) * T.ceildiv(width, 2), threads), threads=threads) as block:
            T.annotate_min_blocks_per_sm(384 // threads)  # twelve warps; else the compiler takes every register
            T.assume(width > 0)
            weights = T.alloc_local((49,), T.float32)
            sums = T.alloc_local((8 * OWN,), T.float32)  # the seven open rows, the oldest first, and one that is zero
            pixels = T.alloc_local((LOADS * LANE,), T.float32)
            raw = T.alloc_local((LOADS, LANE), dtype)
            result = T.alloc_local((OWN,), dtype)
            at = T.alloc_local((2,), T.int32)  # the strip's first row, the thread's first quad
            at[0] = (block * threads + T.get_thread_binding()) // T.ceildiv(width, 2) * ROWS
            at[1] = (block * threads + T.get_thread_binding()) % T.ceildiv(width, 2) * 2
            for tap in T.unroll(49):
                weights[tap] = T.cast(weight[tap], T.float32)
            for v in T.unroll(8 * OWN):
                sums[v] = 0
            if at[0] < rows:
                fetch(x, raw, at[0] - 3, at[1], rows, width)
                for r in T.serial(ROWS + 6):
                    row = at[0] - 3 + r
                    for g in T.unroll(LOADS):
                        for v in T.unroll(LANE):
                            pixels[g * LANE + v] = T.if_then_else(
                                row >= 0 and row < rows and at[1] + g > 0 and at[1] + g <= width,
                                T.cast(raw[g, v], T.float32),
                                T.float32(0),
                            )
                    fetch(x, raw, row + 1, at[1], rows, width)  # on its way while this row is added
                    # Every open row moves up by one as it takes its first product, so that nothing is copied.
                    for k in T.unroll(7):
                        for v in T.unroll(OWN):
                            sums[k * OWN + v] = sums[(k + 1) * OWN + v] + weights[42 - k * 7] * pixels[1 + v]
                        for tap in T.unroll(6):
                            for v in T.unroll(OWN):
                                sums[k * OWN + v] += weights[43 - k * 7 + tap] * pixels[2 + tap + v]
                    # The row three above this one is complete.
                    for v in T.unroll(OWN):
                        result[v] = T.cast(sums[v], dtype)
                    if r >= 6 and row - 3 < rows:
                        for v in T.vectorized(LANE):
                            out[(row - 3) * width + at[1], v] = result[v]
                        if at[1] + 1 < width:
                            for v in T.vectorized(LANE):
                                out[(row - 3) * width + at[1] + 1, v] = result[LANE + v]

    return blur_strips


@T.macro
def fetch_slab(x, raw, top, block, tid, rows, width, BLOCKS: int):
    """raw: this thread's quads of the windows' eight rows from `top` on; x [rows, width, 4]. Those outside are replaced."""
    for e in T.unroll(BLOCKS // 4):
        row = T.max(T.min(top + e // (BLOCKS // 32), rows - 1), 0)
        quad = (block + e % (BLOCKS // 32) * 32 + tid // 4) * 2 - 1 + tid % 4
        for v in T.vectorized(LANE):
            raw[e, v] = x[row * width + T.max(T.min(quad, width - 1), 0), v]


@tilelang.jit(pass_configs=UNCHECKED | {tilelang.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True})
def matrix_kernel(BLOCKS: int):
    """One block of 128 threads, 8 · steps rows of BLOCKS blocks of eight columns; x and out [rows, cols] in quads, weight [49].

    A block of 8×8 results takes a window of 14×16 pixels, that is a slab of eight rows and six rows of the next slab. Each
    slab is loaded once: it completes the results above it, and opens those that the next slab completes.
    """
    all_quads = T.dynamic("all_quads")

    @T.prim_func
    def blur_blocks(
        x: T.Tensor((all_quads, LANE), T.float16),
        weight: T.Tensor((49,), T.float16),
        out: T.Tensor((all_quads, LANE), T.float16),
        rows: T.int32,
        width: T.int32,
        steps: T.int32,
    ):
        with T.Kernel(T.ceildiv(width, 2 * BLOCKS), T.ceildiv(rows, 8 * steps), threads=128) as (column, strip):
            # Element (k, n): what pixel (k / 16, k % 16) of a window's first or later rows gives to result (n / 8, n % 8).
            upper = T.alloc_shared((128, 64), T.float16)
            lower = T.alloc_shared((128, 64), T.float16)
            slab = T.alloc_shared((BLOCKS, 128), T.float16)
            sums = T.alloc_fragment((BLOCKS, 64), T.float32)
            raw = T.alloc_local((BLOCKS // 4, LANE), T.float16)
            tid = T.get_thread_binding()
            for k, n in T.Parallel(128, 64):
                tap = (k // 16 - n // 8) * 7 + k % 16 - n % 8 - 1
                held = k % 16 - n % 8 >= 1 and k % 16 - n % 8 <= 7
                upper[k, n] = T.if_then_else(
                    held and k // 16 - n // 8 >= 0 and k // 16 - n // 8 < 7,
                    weight[T.max(T.min(tap, 48), 0)],
                    T.float16(0),
                )
                lower[k, n] = T.if_then_else(
                    held and k // 16 - n // 8 < -1, weight[T.max(T.min(tap + 56, 48), 0)], T.float16(0)
                )
            T.clear(sums)
            fetch_slab(x, raw, strip * steps * 8 - 3, column * BLOCKS, tid, rows, width, BLOCKS)
            for step in T.serial(steps + 1):
                top = (strip * steps + step) * 8 - 3  # first row of the slab
                T.sync_threads()  # the products of the last slab have read it
                for e in T.unroll(BLOCKS // 4):
                    row = top + e // (BLOCKS // 32)
                    quad = (column * BLOCKS + e % (BLOCKS // 32) * 32 + tid // 4) * 2 - 1 + tid % 4
                    for v in T.vectorized(LANE):
                        slab[e % (BLOCKS // 32) * 32 + tid // 4, e // (BLOCKS // 32) * 16 + tid % 4 * 4 + v] = (
                            T.if_then_else(
                                row >= 0 and row < rows and quad >= 0 and quad < width, raw[e, v], T.float16(0)
                            )
                        )
                T.fence_proxy_async()  # tensor cores read shared memory past the writers' view of it
                T.sync_threads()
                # The next slab is on its way while this one is multiplied.
                fetch_slab(x, raw, top + 8, column * BLOCKS, tid, rows, width, BLOCKS)
                T.gemm(slab, lower, sums)
                for b, n in T.Parallel(BLOCKS, 64):
                    done = top - 5 + n // 8
                    quad = (column * BLOCKS + b) * 2 + n % 8 // 4
                    if step > 0 and done < rows and quad < width:
                        out[done * width + quad, n % 4] = T.cast(sums[b, n], T.float16)
                T.gemm(slab, upper, sums, clear_accum=True)

    return blur_blocks


@tilelang.jit
def tap_kernel(dtype: torch.dtype, KROWS: int, KCOLS: int, threads: int):
    """Any kernel: one thread, one pixel; x and out [rows, cols], weight [KROWS · KCOLS]."""
    rows, cols = T.dynamic("rows, cols")

    @T.prim_func
    def blur_taps(
        x: T.Tensor((rows, cols), dtype), weight: T.Tensor((KROWS * KCOLS,), dtype), out: T.Tensor((rows, cols), dtype)
    ):
        with T.Kernel(T.ceildiv(cols, threads), rows, threads=threads) as (block, row):
            column = block * threads + T.get_thread_binding()
            total = T.alloc_var(T.float32, init=0)
            if column < cols:
                for i, j in T.grid(KROWS, KCOLS):
                    y = row + i - KROWS // 2
                    z = column + j - KCOLS // 2
                    if y >= 0 and y < rows and z >= 0 and z < cols:
                        total += T.cast(x[y, z], T.float32) * T.cast(weight[i * KCOLS + j], T.float32)
                out[row, column] = T.cast(total, dtype)

    return blur_taps


def run(
    input: torch.Tensor,
    kernel: torch.Tensor,
    rows: int,
    cols: int,
    krows: int,
    kcols: int,
    *,
    ROWS: int,
    threads: int,
) -> torch.Tensor:
    """Return the blurred image [rows·cols] of input [rows·cols] and kernel [krows·kcols], all flat."""
    out = torch.empty_like(input)
    if (krows, kcols) == (7, 7) and cols % LANE == 0 and input.data_ptr() % 16 == 0:
        images = input.view(-1, LANE), kernel, out.view(-1, LANE), rows, cols // LANE
        if input.dtype == torch.float16:
            matrix_kernel(64)(*images, -(-ROWS // 8))
        else:
            strip_kernel(input.dtype, threads)(*images, ROWS)
    else:
        tap_kernel(input.dtype, krows, kcols, 128)(input.view(rows, cols), kernel, out.view(rows, cols))
    return out


SCHEDULERS = 528  # of the H200: 132 multiprocessors have four each


def default(case: Case) -> Config:
    rows, cols = case["rows"], case["cols"] or case["rows"]
    if case.dtype == "fp16":
        # Three blocks fit a multiprocessor besides each other; each begins with a matrix of weights, so all run at once.
        return {"ROWS": _slabs(rows, cols, 396), "threads": 128}
    # A strip opens with six rows that it doesn't store, so it should be long; a lone warp leaves its scheduler idle at times.
    warps = min((1, 2, 3), key=lambda warps: (warps + 0.5) * (_rows(rows, cols, warps) + 6))
    return {"ROWS": _rows(rows, cols, warps), "threads": 64}


def _rows(rows: int, cols: int, warps: int) -> int:
    """Rows of a strip for `warps` warps of strips to each scheduler."""
    return -(-rows // max(1, warps * SCHEDULERS // -(-cols // (32 * OWN))))


def _slabs(rows: int, cols: int, blocks: int) -> int:
    """Rows of a strip of 64 blocks of columns for `blocks` strips in all: whole slabs of eight."""
    return 8 * -(-rows // (8 * max(1, blocks // -(-cols // 512))))


def space(case: Case) -> list[Config]:
    rows, cols = case["rows"], case["cols"] or case["rows"]
    if case.dtype == "fp16":
        heights = {_slabs(rows, cols, blocks) for blocks in (132, 264, 396, 528, 1056)}
        return [{"ROWS": height, "threads": 128} for height in sorted(heights | {8, 16, 32})]
    heights = {_rows(rows, cols, warps) for warps in (1, 2, 3, 6, 9)}
    return [{"ROWS": height, "threads": threads} for height in sorted(heights) for threads in (32, 64, 128)]


KERNEL = Kernel(run=run, default=default, space=space)
