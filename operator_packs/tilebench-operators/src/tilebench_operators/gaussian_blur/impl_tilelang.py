"""7×7 blur in TileLang: fp16 as a matrix product, fp32 on the vector units.

fp16: eight neighbouring results of a row are seven products, one for each row of weights: of a window of 16 pixels and a
matrix [16, 8] that holds the seven weights in a band. A warp walks down a strip of 16 windows with seven output rows open:
an input row is loaded once, as the operand that tensor cores take from registers, and multiplied by all seven matrices,
which stay in registers. That is 2.3 times the multiplications, on units that are 16 times as fast; sums are fp32, and
memory bounds it.

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
def fetch(x, raw, row, quad, rows, width, zero):
    """raw [4, 4]: row `row` of four quads, of which `quad` is the second; x [rows, width, 4]. Those outside are `zero`."""
    for g in T.unroll(LOADS):
        for v in T.vectorized(LANE):
            raw[g, v] = T.if_then_else(
                row >= 0 and row < rows and quad + g > 0 and quad + g <= width, x[row * width + quad + g - 1, v], zero
            )


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
            zero = T.cast(T.float32(0), dtype)
            at = T.alloc_local((2,), T.int32)  # the strip's first row, the thread's first quad
            at[0] = (block * threads + T.get_thread_binding()) // T.ceildiv(width, 2) * ROWS
            at[1] = (block * threads + T.get_thread_binding()) % T.ceildiv(width, 2) * 2
            for tap in T.unroll(49):
                weights[tap] = T.cast(weight[tap], T.float32)
            for v in T.unroll(8 * OWN):
                sums[v] = 0
            if at[0] < rows:
                fetch(x, raw, at[0] - 3, at[1], rows, width, zero)
                for r in T.serial(ROWS + 6):
                    row = at[0] - 3 + r
                    for g in T.unroll(LOADS):
                        for v in T.unroll(LANE):
                            pixels[g * LANE + v] = T.cast(raw[g, v], T.float32)
                    fetch(x, raw, row + 1, at[1], rows, width, zero)  # on its way while this row is added
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
def fetch_windows(x, windows, i, row, ends, at):
    """windows [7, 8]: in place i, a lane's share of image row `row` of x [rows·width, 4], from quad `at` on.

    It is zero outside, in one window from row ends[0] on and in the other from ends[1]. A product wants each pair of pixels in
    a register of a certain place, into which a load of one pair can put it. Four pixels loaded at once come into two
    neighbouring registers, and must be copied.
    """
    for h in T.unroll(2):  # the window, and the one eight further
        for half in T.unroll(2):
            for v in T.vectorized(2):
                windows[i * 8 + half * 4 + h * 2 + v] = T.float16(0)
        if T.cast(row, T.uint32) < ends[h]:  # without a sign, rows above the image are large
            for half in T.unroll(2):
                for v in T.vectorized(2):
                    windows[i * 8 + half * 4 + h * 2 + v] = x[at + h * 16, half * 2 + v]


@tilelang.jit(pass_configs=UNCHECKED)
def matrix_kernel(threads: int):
    """One warp, ROWS rows of 16 windows, 128 columns; x and out [rows, cols] in quads, weight [49].

    The instruction m16n8k16 leaves a lane two pairs of a window, which are eight places apart. As the order of the sum is
    free, both matrices have it so that a lane's pairs are neighbours: it loads one quad of window lane / 4, and one of the
    window eight further. Rows come in sevens, as many as are open: after so many, every sum is back in its place.
    """
    all_quads = T.dynamic("all_quads")

    @T.prim_func
    def blur_windows(
        x: T.Tensor((all_quads, LANE), T.float16),
        weight: T.Tensor((49,), T.float16),
        out: T.Tensor((all_quads, LANE), T.float16),
        rows: T.int32,
        width: T.int32,
        ROWS: T.int32,
    ):
        with T.Kernel(T.ceildiv(T.ceildiv(rows, ROWS) * T.ceildiv(width, 32), threads // 32), threads=threads) as block:
            T.annotate_min_blocks_per_sm(512 // threads)  # sixteen warps
            bands = T.alloc_local((7 * 4,), T.float16)
            windows = T.alloc_local((7 * 8,), T.float16)
            sums = T.alloc_local((7 * 4,), T.float32)
            pair = T.alloc_local((2,), T.float16)
            ends = T.alloc_local((2,), T.uint32)
            first, stop = T.alloc_var(T.int32), T.alloc_var(T.int32)
            at, target = T.alloc_var(T.int32), T.alloc_var(T.int32)
            lane = T.get_thread_binding() % 32
            strip = block * (threads // 32) + T.get_thread_binding() // 32
            first = strip // T.ceildiv(width, 32) * ROWS
            stop = T.min(first + ROWS, rows)
            source = strip % T.ceildiv(width, 32) * 32 + lane // 4 * 2 + lane % 4 - 1  # quad of a row
            for h in T.unroll(2):
                ends[h] = T.if_then_else(
                    source + h * 16 >= 0 and source + h * 16 < width,
                    T.cast(T.min(stop + 3, rows), T.uint32),
                    T.uint32(0),
                )
            at = (first - 3) * width + source
            target = strip % T.ceildiv(width, 32) * 32 + lane // 4 * 2 + lane % 4 // 2
            for i in T.unroll(7):
                for v in T.unroll(4):
                    j = lane % 4 * 4 + v - lane // 4 - 1
                    bands[i * 4 + v] = T.if_then_else(
                        j >= 0 and j < 7, weight[i * 7 + T.max(T.min(j, 6), 0)], T.float16(0)
                    )
            for v in T.unroll(28):
                sums[v] = 0
            if first < rows:
                for i in T.unroll(7):  # seven rows are always on their way
                    fetch_windows(x, windows, i, first - 3 + i, ends, at)
                    at = at + width
                for group in T.serial(T.ceildiv(ROWS + 6, 7)):
                    for i in T.unroll(7):
                        # The row three above row i is the oldest open one, at i; that three below is opened in place 6 + i.
                        for v in T.unroll(4):
                            sums[(6 + i) % 7 * 4 + v] = 0
                        for k in T.unroll(7):
                            T.ptx_mma(
                                T.float32, "m16n8k16", "row", "col", "fp16", "fp16", "fp32",
                                windows.data, i * 8, bands.data, (6 - k) * 4, sums.data, (k + i) % 7 * 4, False,
                            )  # fmt: skip
                        fetch_windows(x, windows, i, first + 4 + group * 7 + i, ends, at)
                        at = at + width
                        done = first + group * 7 + i - 6
                        for h in T.unroll(2):
                            for v in T.unroll(2):
                                pair[v] = T.cast(sums[i * 4 + h * 2 + v], T.float16)
                            if done >= first and done < stop and target + h * 16 < width:
                                for v in T.vectorized(2):
                                    out[done * width + target + h * 16, lane % 2 * 2 + v] = pair[v]

    return blur_windows


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
            matrix_kernel(threads)(*images, ROWS)
        else:
            strip_kernel(input.dtype, threads)(*images, ROWS)
    else:
        tap_kernel(input.dtype, krows, kcols, 128)(input.view(rows, cols), kernel, out.view(rows, cols))
    return out


SCHEDULERS = 528  # of the H200: 132 multiprocessors have four each


def default(case: Case) -> Config:
    rows, cols = case["rows"], case["cols"] or case["rows"]
    if case.dtype == "fp16":
        return {"ROWS": _sevens(rows, cols, 16 * 132), "threads": 64}  # sixteen warps fit a multiprocessor
    # A strip opens with six rows that it doesn't store, so it should be long; a lone warp leaves its scheduler idle at times.
    warps = min((1, 2, 3), key=lambda warps: (warps + 0.5) * (_rows(rows, cols, warps) + 6))
    return {"ROWS": _rows(rows, cols, warps), "threads": 64}


def _rows(rows: int, cols: int, warps: int) -> int:
    """Rows of a strip for `warps` warps of strips to each scheduler."""
    return -(-rows // max(1, warps * SCHEDULERS // -(-cols // (32 * OWN))))


def _sevens(rows: int, cols: int, warps: int) -> int:
    """Rows of a strip of 128 columns for at most `warps` strips: with the six that open it, they come in sevens."""
    height = -(-rows // max(1, warps // -(-cols // 128)))
    return -(-(height + 6) // 7) * 7 - 6


def space(case: Case) -> list[Config]:
    rows, cols = case["rows"], case["cols"] or case["rows"]
    if case.dtype == "fp16":
        heights = {_sevens(rows, cols, warps * 132) for warps in (4, 8, 12, 16, 32)} | {1, 8, 15}
        return [{"ROWS": height, "threads": threads} for height in sorted(heights) for threads in (32, 64, 128)]
    heights = {_rows(rows, cols, warps) for warps in (1, 2, 3, 6, 9)}
    return [{"ROWS": height, "threads": threads} for height in sorted(heights) for threads in (32, 64, 128)]


KERNEL = Kernel(run=run, default=default, space=space)
