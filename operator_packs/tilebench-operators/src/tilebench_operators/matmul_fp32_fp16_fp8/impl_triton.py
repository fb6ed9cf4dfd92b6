"""Matrix multiplication in Triton: persistent programs walk output tiles in grouped order; TMA feeds the tensor cores.

Hopper's tensor cores read fp8 and TF32 operands from shared memory only with k innermost, but b [K, N] has n innermost.
With TRANSPOSE_B a first kernel writes b's transpose, inside the call: 2·K·N·s extra bytes, a tenth of the time of a
4096 × 4096 product, for a main loop without shuffles. fp16 needs none of it.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Device, Kernel, multiprocessors
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def to_output(x, dtype: tl.constexpr):
    """Round fp32 once; fp8 saturates instead of overflowing to NaN."""
    if dtype == tl.float8e4nv:
        x = tl.minimum(tl.maximum(x, -448.0), 448.0)
        # Adding and subtracting 2^20 times x's power of two rounds x to the three fraction bits of fp8, ties to even,
        # and the cast is exact: Triton's interpreter would lose the carry into the exponent.
        power = (x.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
        magic = tl.maximum(power, 2.0**-6) * (1.5 * 2.0**20)
        x = (x + magic) - magic
    return x.to(dtype)


@triton.jit
def grouped(tile, m_tiles, n_tiles, GROUP: tl.constexpr):
    """Tiles in column order within bands of GROUP tile rows: neighbours in time share operands in the L2 cache."""
    band = tile // (GROUP * n_tiles)
    height = tl.minimum(m_tiles - band * GROUP, GROUP)
    within = tile % (GROUP * n_tiles)
    return band * GROUP + within % height, within // height


@triton.jit
def halves(tile):
    """The left and the right half of a tile's columns."""
    return tl.split(tl.permute(tl.reshape(tile, [tile.shape[0], 2, tile.shape[1] // 2]), [0, 2, 1]))


@triton.jit
def transpose_kernel(b_ptr, t_ptr, K, N, TILE: tl.constexpr):
    """t[n, k] = b[k, n]; b [K, N], t [N, K]."""
    k = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    n = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    mask = (k[:, None] < K) & (n[None, :] < N)
    b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=mask)
    tl.store(t_ptr + n[:, None] * K + k[None, :], tl.trans(b), mask=tl.trans(mask))


@triton.jit
def store(c_desc, tile, row, column):
    """Write a tile in as many parts as the descriptor's blocks demand: a small staging buffer leaves room for operands."""
    if tile.shape[1] == c_desc.block_shape[1]:
        c_desc.store([row, column], tile.to(c_desc.dtype))
    else:
        left, right = halves(tile)
        store(c_desc, left, row, column)
        store(c_desc, right, row, column + tile.shape[1] // 2)


@triton.jit
def matmul_kernel(
    a_desc, b_desc, c_desc, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    TRANSPOSED: tl.constexpr, FLATTEN: tl.constexpr,
):  # fmt: skip
    """c = a·b; a [M, K], c [M, N], b [K, N] or, if TRANSPOSED, [N, K]. Loads beyond the edge give zeros."""
    m_tiles, n_tiles, k_tiles = tl.cdiv(M, BM), tl.cdiv(N, BN), tl.cdiv(K, BK)
    # Flattened, the two loops become one, and the next tile's loads start during this tile's epilogue.
    for tile in tl.range(tl.program_id(0), m_tiles * n_tiles, tl.num_programs(0), flatten=FLATTEN):
        m, n = grouped(tile, m_tiles, n_tiles, GROUP)
        accumulator = tl.zeros([BM, BN], tl.float32)
        for step in range(k_tiles):
            a = a_desc.load([m * BM, step * BK])
            b = tl.trans(b_desc.load([n * BN, step * BK])) if TRANSPOSED else b_desc.load([step * BK, n * BN])
            accumulator = tl.dot(a, b, accumulator, input_precision="tf32")
        store(c_desc, accumulator, m * BM, n * BN)


@triton.jit
def fp8_kernel(
    a_desc, b_desc, c_desc, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    TRANSPOSED: tl.constexpr, FLATTEN: tl.constexpr,
):  # fmt: skip
    """The same for fp8. Hopper's tensor cores add fp8 products with about 14 bits, so each BK of them is summed apart
    and then added in fp32. The tile's upper and lower half take turns, so that one partial sum of half a tile is alive.
    Triton waits for each before it adds: a second program on the multiprocessor multiplies meanwhile."""
    HALF: tl.constexpr = BM // 2
    m_tiles, n_tiles, k_tiles = tl.cdiv(M, BM), tl.cdiv(N, BN), tl.cdiv(K, BK)
    for tile in tl.range(tl.program_id(0), m_tiles * n_tiles, tl.num_programs(0), flatten=FLATTEN):
        m, n = grouped(tile, m_tiles, n_tiles, GROUP)
        upper = tl.zeros([HALF, BN], tl.float32)
        lower = tl.zeros([HALF, BN], tl.float32)
        for step in range(k_tiles):
            b = tl.trans(b_desc.load([n * BN, step * BK])) if TRANSPOSED else b_desc.load([step * BK, n * BN])
            upper += tl.dot(a_desc.load([m * BM, step * BK]), b)
            lower += tl.dot(a_desc.load([m * BM + HALF, step * BK]), b)
        c_desc.store([m * BM, n * BN], to_output(upper, c_desc.dtype))
        c_desc.store([m * BM + HALF, n * BN], to_output(lower, c_desc.dtype))


@triton.jit
def pointer_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    """The same product for rows that TMA can't address: their pitch is no multiple of 16 bytes. A program, a tile."""
    m, n = grouped(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN), GROUP)
    rows = m.to(tl.int64) * BM + tl.arange(0, BM)
    columns = n.to(tl.int64) * BN + tl.arange(0, BN)
    accumulator = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + k, mask=(rows[:, None] < M) & (k < K), other=0.0)
        b = tl.load(b_ptr + k[:, None].to(tl.int64) * N + columns, mask=(k[:, None] < K) & (columns < N), other=0.0)
        accumulator += tl.dot(a, b, input_precision="tf32")
    c = to_output(accumulator, c_ptr.dtype.element_ty)
    tl.store(c_ptr + rows[:, None] * N + columns, c, mask=(rows[:, None] < M) & (columns < N))


def run(
    a: torch.Tensor, b: torch.Tensor, *, BM: int, BN: int, BK: int, GROUP: int, TRANSPOSE_B: bool,
    PROGRAMS_PER_SM: int, num_warps: int, num_stages: int,
) -> torch.Tensor:  # fmt: skip
    """Return c = a·b in the operands' dtype; a [M, K], b [K, N], c [M, N].

    PROGRAMS_PER_SM programs stay on each multiprocessor; 0 starts one program per tile instead.
    """
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty([M, N], dtype=a.dtype, device=a.device)
    tiles = triton.cdiv(M, BM) * triton.cdiv(N, BN)
    size = a.element_size()
    if K * size % 16 or N * size % 16:
        pointer_kernel[(triton.cdiv(M, 64) * triton.cdiv(N, 64),)](
            a, b, c, M, N, K, BM=64, BN=64, BK=32, GROUP=8, num_warps=4, num_stages=3
        )
        return c
    if TRANSPOSE_B:
        transposed = torch.empty([N, K], dtype=b.dtype, device=b.device)
        TILE = 64 if size > 1 else 128  # at least 128 bytes in a row, read and written
        transpose_kernel[(triton.cdiv(K, TILE), triton.cdiv(N, TILE))](b, transposed, K, N, TILE=TILE, num_warps=8)
        b_desc = TensorDescriptor.from_tensor(transposed, [BN, BK])
    else:
        b_desc = TensorDescriptor.from_tensor(b, [BK, BN])
    if size == 1:  # a's and c's tiles pass in halves of rows
        a_block, c_block = [BM // 2, BK], [BM // 2, BN]
    else:  # c's tiles leave in parts of columns; with four of them, a fourth stage of fp32 operands fits
        a_block, c_block = [BM, BK], [BM, BN // (4 if size == 4 and num_stages > 3 else 2)]
    a_desc, c_desc = TensorDescriptor.from_tensor(a, a_block), TensorDescriptor.from_tensor(c, c_block)
    programs = min(tiles, PROGRAMS_PER_SM * multiprocessors(a.device)) if PROGRAMS_PER_SM else tiles
    kernel = fp8_kernel if size == 1 else matmul_kernel
    kernel[(programs,)](
        a_desc, b_desc, c_desc, M, N, K, BM=BM, BN=BN, BK=BK, GROUP=GROUP, TRANSPOSED=TRANSPOSE_B,
        FLATTEN=PROGRAMS_PER_SM > 0, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return c


# Tiles (BM, BN, BK), warps, stages, and the programs per multiprocessor to try. All fit, and none spills on Hopper.
FP16 = [
    ((64, 128, 64), 4, 4, (2,)), ((64, 128, 64), 4, 6, (1,)), ((64, 256, 64), 4, 4, (0, 1)),
    ((128, 128, 64), 4, 3, (2,)), ((128, 128, 64), 4, 4, (0, 1)), ((128, 128, 64), 8, 4, (1,)),
    ((128, 128, 64), 8, 5, (0, 1)), ((128, 128, 128), 8, 2, (1,)), ((128, 128, 128), 8, 3, (1,)),
    ((128, 256, 32), 8, 5, (1,)), ((128, 256, 64), 8, 3, (0, 1)), ((128, 256, 64), 8, 4, (0, 1)),
    ((128, 256, 128), 8, 2, (1,)), ((256, 128, 64), 8, 3, (1,)), ((256, 128, 64), 8, 4, (0, 1)),
]  # fmt: skip
FP32 = [
    ((64, 128, 32), 4, 4, (2,)), ((64, 256, 32), 4, 4, (0, 1)), ((128, 128, 32), 4, 3, (0, 1)),
    ((128, 128, 32), 8, 5, (0, 1)), ((128, 256, 32), 8, 3, (0, 1)), ((128, 256, 32), 8, 4, (0, 1)),
    ((256, 128, 32), 8, 3, (1,)), ((256, 128, 32), 8, 4, (0, 1)),
]  # fmt: skip
FP8 = [
    ((128, 64, 128), 4, 4, (2,)), ((256, 64, 128), 8, 4, (1,)), ((128, 128, 64), 4, 4, (2,)),
    ((128, 128, 64), 4, 6, (2,)), ((128, 128, 128), 4, 3, (0, 1, 2)), ((128, 128, 128), 8, 4, (0, 1)),
    ((128, 128, 128), 8, 5, (1,)), ((128, 128, 256), 8, 3, (1,)), ((128, 256, 128), 8, 3, (1,)),
    ((128, 256, 128), 8, 4, (1,)), ((256, 128, 128), 8, 3, (1,)), ((256, 128, 128), 8, 4, (1,)),
]  # fmt: skip


def _config(
    tile: tuple[int, int, int], warps: int, stages: int, per_sm: int, transpose: bool, group: int = 8
) -> Config:
    BM, BN, BK = tile
    return {
        "BM": BM, "BN": BN, "BK": BK, "GROUP": group, "TRANSPOSE_B": transpose, "PROGRAMS_PER_SM": per_sm,
        "num_warps": warps, "num_stages": stages,
    }  # fmt: skip


def default(case: Case) -> Config:
    if case.dtype == "fp16":
        return _config((128, 256, 64), 8, 4, 1, False)
    if case.dtype == "fp8_e4m3":
        return _config((128, 128, 128), 4, 3, 2, True)
    return _config((128, 256, 32), 8, 3, 1, True)


def space(case: Case) -> list[Config]:
    shapes = {"fp16": FP16, "fp32": FP32, "fp8_e4m3": FP8}[case.dtype]
    return [
        _config(tile, warps, stages, per_sm, case.dtype != "fp16", group)
        for tile, warps, stages, several in shapes
        for per_sm in several
        for group in (4, 8, 16)
    ]


def unsupported(case: Case, device: Device) -> str | None:
    if case.dtype == "fp8_e4m3" and device.is_gpu and device.capability < (8, 9):
        return f"fp8_e4m3 needs compute capability 8.9 or newer, {device.name} has {device.arch}"
    return None


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
