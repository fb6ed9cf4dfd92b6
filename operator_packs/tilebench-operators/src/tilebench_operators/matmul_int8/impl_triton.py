"""int8 times 2-bit matrix multiplication in Triton: unpack w once, then an int8 product on the tensor cores.

Hopper's int8 tensor cores read w from shared memory only with k innermost, while the packed matrix has n innermost.
Unpacking inside the product would therefore shuffle every byte of w once per tile row (16 times for 2048 rows); here
one small kernel unpacks and transposes into w [N, K] int8, inside the call, which mostly stays in the L2 cache.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel, multiprocessors
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def unpack_kernel(packed_ptr, w_ptr, QUARTER, N, TILE: tl.constexpr):
    """w[n, i·QUARTER + j] = ((packed[j, n] >> 2i) & 3) - 1; packed [QUARTER, N] uint8, w [N, 4·QUARTER] int8."""
    j = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    n = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    mask = (n[:, None] < N) & (j[None, :] < QUARTER)
    packed = tl.trans(tl.load(packed_ptr + j[:, None] * N + n[None, :], mask=tl.trans(mask), other=0))
    for field in tl.static_range(4):
        value = ((packed >> (2 * field)) & 3).to(tl.int8) - 1
        tl.store(w_ptr + n[:, None] * (4 * QUARTER) + field * QUARTER + j[None, :], value, mask=mask)


@triton.jit
def unpack_words_kernel(packed_ptr, w_ptr, WORDS, N, TILE_J: tl.constexpr, TILE_N: tl.constexpr):
    """The same for QUARTER = 4·WORDS and w [N, 4·WORDS] int32: four numbers are unpacked at once in the bytes of a word,
    and words turn around in shared memory, not bytes."""
    j = tl.program_id(0).to(tl.int64) * TILE_J + tl.arange(0, TILE_J)
    n = tl.program_id(1).to(tl.int64) * TILE_N + tl.arange(0, TILE_N)
    mask = (j[:, None] < WORDS) & (n[None, :] < N)
    words = tl.zeros([TILE_J, TILE_N], tl.int32)
    for byte in tl.static_range(4):
        packed = tl.load(packed_ptr + (4 * j[:, None] + byte) * N + n[None, :], mask=mask, other=0)
        words |= packed.to(tl.int32) << (8 * byte)
    for field in tl.static_range(4):
        # Per byte: 0..3 plus 127 sets the top bit unless it was 0; flipped, that is the number minus 1.
        numbers = (((words >> (2 * field)) & 0x03030303) + 0x7F7F7F7F) ^ -0x7F7F7F80
        tl.store(w_ptr + n[:, None] * (4 * WORDS) + field * WORDS + j[None, :], tl.trans(numbers), mask=tl.trans(mask))


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
def matmul_kernel(
    a_desc, w_desc, c_desc, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, FLATTEN: tl.constexpr,
):  # fmt: skip
    """c = a·wᵀ; a [M, K] int8, w [N, K] int8, c [M, N] int32. Loads beyond the edge give zeros."""
    m_tiles, n_tiles, k_tiles = tl.cdiv(M, BM), tl.cdiv(N, BN), tl.cdiv(K, BK)
    # Flattened, the two loops become one, and the next tile's loads start during this tile's epilogue.
    for tile in tl.range(tl.program_id(0), m_tiles * n_tiles, tl.num_programs(0), flatten=FLATTEN):
        m, n = grouped(tile, m_tiles, n_tiles, GROUP)
        accumulator = tl.zeros([BM, BN], tl.int32)
        for step in range(k_tiles):
            a = a_desc.load([m * BM, step * BK])
            w = w_desc.load([n * BN, step * BK])
            accumulator = tl.dot(a, tl.trans(w), accumulator, out_dtype=tl.int32)
        # The tile leaves in four parts: the staging buffer shrinks, which makes room for another stage of operands.
        left, right = halves(accumulator)
        first, second = halves(left)
        third, fourth = halves(right)
        c_desc.store([m * BM, n * BN], first)
        c_desc.store([m * BM, n * BN + BN // 4], second)
        c_desc.store([m * BM, n * BN + BN // 2], third)
        c_desc.store([m * BM, n * BN + BN // 4 * 3], fourth)


@triton.jit
def pointer_kernel(a_ptr, w_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The same product for rows that TMA can't address: their pitch is no multiple of 16 bytes. A program, a tile."""
    m, n = grouped(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN), 8)
    rows = m.to(tl.int64) * BM + tl.arange(0, BM)
    columns = n.to(tl.int64) * BN + tl.arange(0, BN)
    accumulator = tl.zeros([BM, BN], tl.int32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + k, mask=(rows[:, None] < M) & (k < K), other=0)
        w = tl.load(w_ptr + columns[None, :] * K + k[:, None], mask=(columns < N) & (k[:, None] < K), other=0)
        accumulator = tl.dot(a, w, accumulator, out_dtype=tl.int32)
    tl.store(c_ptr + rows[:, None] * N + columns, accumulator, mask=(rows[:, None] < M) & (columns < N))


def run(
    a: torch.Tensor, packed: torch.Tensor, *, BM: int, BN: int, BK: int, GROUP: int, PROGRAMS_PER_SM: int,
    num_warps: int, num_stages: int,
) -> torch.Tensor:  # fmt: skip
    """Return c [M, N] int32; a [M, K] int8, packed [K/4, N] uint8.

    PROGRAMS_PER_SM programs stay on each multiprocessor; 0 starts one program per tile instead.
    """
    (M, K), N = a.shape, packed.shape[1]
    w = torch.empty([N, K], dtype=torch.int8, device=a.device)
    c = torch.empty([M, N], dtype=torch.int32, device=a.device)
    if K % 16 or N % 4:
        unpack_kernel[(triton.cdiv(K // 4, 128), triton.cdiv(N, 128))](packed, w, K // 4, N, TILE=128, num_warps=8)
        pointer_kernel[(triton.cdiv(M, 64) * triton.cdiv(N, 64),)](
            a, w, c, M, N, K, BM=64, BN=64, BK=64, num_warps=4, num_stages=3
        )
        return c
    unpack_words_kernel[(triton.cdiv(K // 16, 32), triton.cdiv(N, 128))](
        packed, w.view(torch.int32), K // 16, N, TILE_J=32, TILE_N=128, num_warps=8
    )
    tiles = triton.cdiv(M, BM) * triton.cdiv(N, BN)
    programs = min(tiles, PROGRAMS_PER_SM * multiprocessors(a.device)) if PROGRAMS_PER_SM else tiles
    matmul_kernel[(programs,)](
        TensorDescriptor.from_tensor(a, [BM, BK]),
        TensorDescriptor.from_tensor(w, [BN, BK]),
        TensorDescriptor.from_tensor(c, [BM, BN // 4]),
        M, N, K, BM=BM, BN=BN, BK=BK, GROUP=GROUP, FLATTEN=PROGRAMS_PER_SM > 0,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return c


def _config(BM: int, BN: int, BK: int, warps: int, stages: int, per_sm: int) -> Config:
    return {
        "BM": BM, "BN": BN, "BK": BK, "GROUP": 8, "PROGRAMS_PER_SM": per_sm, "num_warps": warps, "num_stages": stages
    }  # fmt: skip


def default(case: Case) -> Config:
    # 2048 × 2048 results are 128 tiles of 128 × 256: one for each of Hopper's 132 multiprocessors.
    return _config(128, 256, 128, 8, 4, 0)


def space(case: Case) -> list[Config]:
    shapes = [
        (64, 256, 128, 4, 4), (128, 128, 128, 4, 3), (128, 128, 128, 8, 4), (128, 128, 256, 8, 2),
        (128, 256, 128, 8, 3), (256, 128, 128, 8, 3), (128, 256, 128, 8, 4), (256, 128, 128, 8, 4),
        (128, 256, 64, 8, 6), (256, 128, 64, 8, 6), (128, 256, 256, 8, 2),
    ]  # fmt: skip
    # Two programs on a multiprocessor: Triton waits for each int8 product, and the other multiplies meanwhile.
    return [_config(*shape, per_sm) for shape in shapes for per_sm in (0, 1)] + [_config(128, 128, 128, 4, 3, 2)]


KERNEL = Kernel(run=run, default=default, space=space)
