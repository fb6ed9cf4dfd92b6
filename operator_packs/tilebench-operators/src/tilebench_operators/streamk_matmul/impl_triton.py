"""Stream-K matrix multiplication in Triton: whole waves of tiles, and one wave split along k.

With T tiles and P programs, one per multiprocessor, the T mod P tiles of the incomplete wave become one list of k
steps, which is cut into P equal ranges. Two launches:
1. every program sums its range, which touches one or two tiles, into fp32 pieces of a workspace, then computes whole
   tiles, whose number is a multiple of P: the pieces reach memory meanwhile;
2. the pieces are added up.
Only the split tiles pass through fp32 memory, and no atomics are needed, so results are reproducible. A nearly full
last wave is not split: the pieces' traffic would cost more than the idle multiprocessors.

Hopper's tensor cores read TF32 operands from shared memory only with k innermost; with TRANSPOSE_B a first kernel
writes b's transpose, inside the call.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel, multiprocessors
from triton.tools.tensor_descriptor import TensorDescriptor

SPLIT_BELOW = 0.75  # of a wave
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def multiply(a, b, accumulator):
    """accumulator + a·b in fp32; fp32 operands as TF32."""
    if INTERPRETED and a.dtype == tl.bfloat16:  # Triton's interpreter can't multiply bf16 matrices
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, accumulator, input_precision="tf32")


@triton.jit
def transpose_kernel(b_ptr, t_ptr, k, n, TILE: tl.constexpr):
    """t[j, l] = b[l, j]; b [k, n], t [n, k]."""
    rows = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    mask = (rows[:, None] < k) & (columns[None, :] < n)
    b = tl.load(b_ptr + rows[:, None] * n + columns[None, :], mask=mask)
    tl.store(t_ptr + columns[:, None] * k + rows[None, :], tl.trans(b), mask=tl.trans(mask))


@triton.jit
def grouped(tile, m_tiles, n_tiles, GROUP: tl.constexpr):
    """Tiles in column order within bands of GROUP tile rows: neighbours in time share operands in the L2 cache."""
    band = tile // (GROUP * n_tiles)
    height = tl.minimum(m_tiles - band * GROUP, GROUP)
    within = tile % (GROUP * n_tiles)
    return band * GROUP + within % height, within // height


@triton.jit
def range_start(program, steps, programs):
    """The first of the k steps that `program` sums; the ranges' lengths differ by one at most."""
    return program * (steps // programs) + tl.minimum(program, steps % programs)


@triton.jit
def owner(step, steps, programs):
    """The program whose range holds `step`."""
    short, longer = steps // programs, steps % programs
    in_short = longer + (step - longer * (short + 1)) // tl.maximum(short, 1)
    return tl.where(step < longer * (short + 1), step // (short + 1), in_short)


@triton.jit
def add_step(
    a_desc, b_desc, accumulator, i, j, step, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """accumulator + the products of one k step of tile (i, j). Loads beyond the edge give zeros."""
    a = a_desc.load([i * BM, step * BK])
    b = tl.trans(b_desc.load([j * BN, step * BK])) if TRANSPOSED else b_desc.load([step * BK, j * BN])
    return multiply(a, b, accumulator)


@triton.jit
def store(desc, tile, row, column):
    """Write a tile in as many parts as the descriptor's blocks demand: a small staging buffer leaves room for operands."""
    if tile.shape[1] == desc.block_shape[1]:
        desc.store([row, column], tile.to(desc.dtype))
    else:
        left, right = tl.split(tl.permute(tl.reshape(tile, [tile.shape[0], 2, tile.shape[1] // 2]), [0, 2, 1]))
        store(desc, left, row, column)
        store(desc, right, row, column + tile.shape[1] // 2)


@triton.jit
def streamk_kernel(
    a_desc, b_desc, c_desc, pieces_desc, m, n, split, k: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """Sum a range of the first `split` tiles' k steps into pieces [programs·2·BM, BN] fp32, then whole tiles into c."""
    STEPS: tl.constexpr = (k + BK - 1) // BK  # per tile
    program, programs = tl.program_id(0), tl.num_programs(0)
    m_tiles, n_tiles = tl.cdiv(m, BM), tl.cdiv(n, BN)
    start = range_start(program, split * STEPS, programs)
    end = range_start(program + 1, split * STEPS, programs)
    accumulator = tl.zeros([BM, BN], tl.float32)
    for position in range(start, end):  # a range is no longer than a tile, so it touches two at most
        tile, step = position // STEPS, position % STEPS
        i, j = grouped(tile, m_tiles, n_tiles, GROUP)
        accumulator = add_step(a_desc, b_desc, accumulator, i, j, step, BM, BN, BK, TRANSPOSED)
        if (step == STEPS - 1) | (position == end - 1):
            store(pieces_desc, accumulator, (program * 2 + tile - start // STEPS) * BM, 0)
            accumulator = tl.zeros([BM, BN], tl.float32)

    # Flattened, the two loops become one, and the next tile's loads start during this tile's epilogue.
    for tile in tl.range(split + program, m_tiles * n_tiles, programs, flatten=True):
        i, j = grouped(tile, m_tiles, n_tiles, GROUP)
        accumulator = tl.zeros([BM, BN], tl.float32)
        for step in range(STEPS):
            accumulator = add_step(a_desc, b_desc, accumulator, i, j, step, BM, BN, BK, TRANSPOSED)
        store(c_desc, accumulator, i * BM, j * BN)


@triton.jit
def sum_kernel(
    pieces_ptr, c_ptr, m, n, split, programs, k: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Add up ROWS rows of a split tile's pieces [programs, 2, BM, BN] into c [m, n]."""
    STEPS: tl.constexpr = (k + BK - 1) // BK
    AT_ONCE: tl.constexpr = 8  # pieces, all loads under way before the first is added
    tile, top = tl.program_id(0), tl.program_id(1) * ROWS
    first = owner(tile * STEPS, split * STEPS, programs)
    last = owner(tile * STEPS + STEPS - 1, split * STEPS, programs)
    rows, columns = top + tl.arange(0, ROWS)[:, None], tl.arange(0, BN)
    total = tl.zeros([ROWS, BN], tl.float32)
    for several in range(first, last + 1, AT_ONCE):
        program = several + tl.arange(0, AT_ONCE)
        piece = tile - range_start(program, split * STEPS, programs) // STEPS  # of the two that a program has
        places = (program * 2 + piece).to(tl.int64)[:, None, None] * (BM * BN) + (rows * BN + columns)[None]
        total += tl.sum(tl.load(pieces_ptr + places, mask=(program <= last)[:, None, None], other=0.0), axis=0)
    i, j = grouped(tile, tl.cdiv(m, BM), tl.cdiv(n, BN), GROUP)
    rows, columns = i * BM + rows, j * BN + columns
    c = total.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + rows.to(tl.int64) * n + columns, c, mask=(rows < m) & (columns < n))


@triton.jit
def pointer_kernel(a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A plain product for rows that TMA can't address: their pitch is no multiple of 16 bytes. A program, a tile."""
    i, j = grouped(tl.program_id(0), tl.cdiv(m, BM), tl.cdiv(n, BN), 8)
    rows = i.to(tl.int64) * BM + tl.arange(0, BM)[:, None]
    columns = j.to(tl.int64) * BN + tl.arange(0, BN)
    accumulator = tl.zeros([BM, BN], tl.float32)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows * k + inner, mask=(rows < m) & (inner < k), other=0.0)
        b_rows = inner[:, None].to(tl.int64)
        b = tl.load(b_ptr + b_rows * n + columns, mask=(b_rows < k) & (columns < n), other=0.0)
        accumulator = multiply(a, b, accumulator)
    c = accumulator.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + rows * n + columns, c, mask=(rows < m) & (columns < n))


def run(
    a: torch.Tensor, b: torch.Tensor, *, BM: int, BN: int, BK: int, TRANSPOSE_B: bool, num_warps: int, num_stages: int
) -> torch.Tensor:
    """Return c = a·b in the operands' dtype; a [m, k], b [k, n], c [m, n]."""
    (m, k), n, size = a.shape, b.shape[1], a.element_size()
    c = torch.empty([m, n], dtype=a.dtype, device=a.device)
    if k * size % 16 or n * size % 16:
        pointer_kernel[(triton.cdiv(m, 64) * triton.cdiv(n, 64),)](
            a, b, c, m, n, k, BM=64, BN=64, BK=32, num_warps=4, num_stages=3
        )
        return c
    if TRANSPOSE_B:
        transposed = torch.empty([n, k], dtype=b.dtype, device=b.device)
        transpose_kernel[(triton.cdiv(k, 64), triton.cdiv(n, 64))](b, transposed, k, n, TILE=64, num_warps=8)
        b_desc = TensorDescriptor.from_tensor(transposed, [BN, BK])
    else:
        b_desc = TensorDescriptor.from_tensor(b, [BK, BN])
    tiles, programs = triton.cdiv(m, BM) * triton.cdiv(n, BN), multiprocessors(a.device)
    split = tiles % programs
    if split > SPLIT_BELOW * programs:
        split = 0
    pieces = torch.empty([programs * 2 * BM if split else 1, BN], dtype=torch.float32, device=a.device)
    a_desc = TensorDescriptor.from_tensor(a, [BM, BK])
    c_desc = TensorDescriptor.from_tensor(c, [BM, BN // 2])
    pieces_desc = TensorDescriptor.from_tensor(pieces, [BM, BN // 4])
    shape = {"k": k, "BM": BM, "BN": BN, "BK": BK, "GROUP": 8}
    streamk_kernel[(programs,)](
        a_desc, b_desc, c_desc, pieces_desc, m, n, split, **shape, TRANSPOSED=TRANSPOSE_B,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    if split:
        ROWS = 4
        sum_kernel[(split, BM // ROWS)](pieces, c, m, n, split, programs, **shape, ROWS=ROWS, num_warps=8)
    return c


def _config(BM: int, BN: int, BK: int, warps: int, stages: int, transpose: bool) -> Config:
    return {"BM": BM, "BN": BN, "BK": BK, "TRANSPOSE_B": transpose, "num_warps": warps, "num_stages": stages}


def default(case: Case) -> Config:
    if case.dtype == "fp32":
        return _config(128, 256, 32, 8, 3, True)
    return _config(128, 256, 64, 8, 4, False)


def space(case: Case) -> list[Config]:
    depth = 128 // case.dtype_size  # one row of a tile fills TMA's widest swizzle, 128 bytes
    shapes = [
        (128, 128, 4, 3), (128, 128, 8, 4), (128, 128, 8, 5), (64, 256, 4, 4), (64, 256, 8, 3), (256, 64, 8, 4),
        (128, 256, 8, 3), (256, 128, 8, 3),
    ]  # fmt: skip
    if case.dtype != "fp32":
        shapes += [(128, 256, 8, 4), (256, 128, 8, 4)]
    return [_config(bm, bn, depth, warps, stages, case.dtype == "fp32") for bm, bn, warps, stages in shapes]


KERNEL = Kernel(run=run, default=default, space=space)
