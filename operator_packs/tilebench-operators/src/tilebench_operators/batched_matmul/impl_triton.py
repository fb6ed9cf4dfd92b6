"""Batched matrix multiplication in Triton: a program computes output tiles of a batch entry; TMA loads and stores.

The operands travel from the L2 cache to the multiprocessors once per tile that needs them, and at these sizes that road
(about 7 TB/s) is what limits: a large tile travels least. But the tiles come in rounds, and a round that is hardly filled
costs as much as a full one. `default` weighs the two. The widest tiles fill a multiprocessor alone: there, programs stay
and walk over tiles, so that the next tile's loads start during this tile's epilogue.

TF32 tensor cores want k innermost in shared memory, which b [K, N] has not. From 128 on a first launch writes b's
transpose, inside the call, which costs less than shuffling every tile on its way; below it, the product is formed
transposed, since a left operand may come from registers, in any order.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel, multiprocessors
from triton.tools.tensor_descriptor import TensorDescriptor

from tilebench_operators.batched_matmul._tiles import estimate_us

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def multiply(a, b, accumulator):
    """accumulator + a·b in fp32; fp32 operands as TF32."""
    if INTERPRETED and a.dtype == tl.bfloat16:  # Triton's interpreter can't multiply bf16 matrices
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, accumulator, input_precision="tf32")


@triton.jit
def transpose_kernel(b_ptr, t_ptr, K, N, TILE: tl.constexpr):
    """t[e, n, k] = b[e, k, n]; b [BATCH, K, N], t [BATCH, N, K]."""
    entry = tl.program_id(2).to(tl.int64) * K * N
    k = tl.program_id(0) * TILE + tl.arange(0, TILE)
    n = tl.program_id(1) * TILE + tl.arange(0, TILE)
    mask = (k[:, None] < K) & (n[None, :] < N)
    b = tl.load(b_ptr + entry + k[:, None] * N + n[None, :], mask=mask)
    tl.store(t_ptr + entry + n[:, None] * K + k[None, :], tl.trans(b), mask=tl.trans(mask))


@triton.jit
def halves(tile):
    """The left and the right half of a tile's columns."""
    return tl.split(tl.permute(tl.reshape(tile, [tile.shape[0], 2, tile.shape[1] // 2]), [0, 2, 1]))


@triton.jit
def store_tile(c_desc, entry, m, n, tile, PARTS: tl.constexpr):
    """Store a tile in 1, 2 or 4 parts: the staging buffer shrinks, which makes room for more stages of operands."""
    if PARTS == 1:
        c_desc.store([entry, m, n], tile.to(c_desc.dtype).reshape(1, tile.shape[0], tile.shape[1]))
    else:
        left, right = halves(tile)
        store_tile(c_desc, entry, m, n, left, PARTS // 2)
        store_tile(c_desc, entry, m, n + left.shape[1], right, PARTS // 2)


@triton.jit
def bmm_tile(
    tile, a_desc, b_desc, c_desc, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TRANSPOSED: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """One tile of c. Loads beyond an edge give zeros, stores are dropped, within each matrix."""
    m_tiles, n_tiles = tl.cdiv(M, BM), tl.cdiv(N, BN)
    entry = tile // (m_tiles * n_tiles)
    m = tile // n_tiles % m_tiles * BM
    n = tile % n_tiles * BN
    turned: tl.constexpr = a_desc.dtype == tl.float32 and not TRANSPOSED
    accumulator = tl.zeros([BN, BM] if turned else [BM, BN], tl.float32)
    for step in range(tl.cdiv(K, BK)):
        k = step * BK
        a = a_desc.load([entry, m, k]).reshape(BM, BK)
        if TRANSPOSED:
            accumulator = multiply(a, b_desc.load([entry, n, k]).reshape(BN, BK).T, accumulator)
        else:
            b = b_desc.load([entry, k, n]).reshape(BK, BN)
            accumulator = multiply(b.T, a.T, accumulator) if turned else multiply(a, b, accumulator)
    store_tile(c_desc, entry, m, n, accumulator.T if turned else accumulator, PARTS)


@triton.jit
def bmm_kernel(
    a_desc, b_desc, c_desc, tiles, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TRANSPOSED: tl.constexpr, PARTS: tl.constexpr,
    STAY: tl.constexpr,
):  # fmt: skip
    """c[e] = a[e]·b[e]; a [BATCH, M, K], c [BATCH, M, N], b [BATCH, K, N] or, if TRANSPOSED, [BATCH, N, K].

    A program computes one tile or, to STAY, every so many. Tiles of one matrix are neighbours in time.
    """
    if STAY:  # flattened, the loop over tiles and the one over k become one
        for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
            bmm_tile(tile, a_desc, b_desc, c_desc, M, N, K, BM, BN, BK, TRANSPOSED, PARTS)
    else:
        bmm_tile(tl.program_id(0), a_desc, b_desc, c_desc, M, N, K, BM, BN, BK, TRANSPOSED, PARTS)


@triton.jit
def pointer_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The same for rows that TMA can't address: their pitch is no multiple of 16 bytes."""
    m_tiles, n_tiles = tl.cdiv(M, BM), tl.cdiv(N, BN)
    entry = (tl.program_id(0) // (m_tiles * n_tiles)).to(tl.int64)
    rows = tl.program_id(0) // n_tiles % m_tiles * BM + tl.arange(0, BM)[:, None]
    columns = tl.program_id(0) % n_tiles * BN + tl.arange(0, BN)
    accumulator = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + entry * M * K + rows * K + k, mask=(rows < M) & (k < K), other=0.0)
        b_mask = (k[:, None] < K) & (columns < N)
        b = tl.load(b_ptr + entry * K * N + k[:, None] * N + columns, mask=b_mask, other=0.0)
        accumulator = multiply(a, b, accumulator)
    c = accumulator.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + entry * M * N + rows * N + columns, c, mask=(rows < M) & (columns < N))


def run(
    a: torch.Tensor, b: torch.Tensor, BATCH: int, M: int, N: int, K: int, *, BM: int, BN: int, BK: int,
    TRANSPOSE_B: bool, STAY: bool, num_warps: int, num_stages: int,
) -> torch.Tensor:  # fmt: skip
    """Return c [BATCH·M·N] of a [BATCH·M·K] and b [BATCH·K·N], in their dtype.

    To STAY, one program for each multiprocessor walks over tiles; otherwise there is one program per tile.
    """
    c = torch.empty(BATCH * M * N, dtype=a.dtype, device=a.device)
    size = a.element_size()
    tiles = BATCH * triton.cdiv(M, BM) * triton.cdiv(N, BN)
    options = {"num_warps": num_warps, "num_stages": num_stages}
    if K * size % 16 or N * size % 16:
        tiles = BATCH * triton.cdiv(M, 64) * triton.cdiv(N, 64)
        pointer_kernel[(tiles,)](a, b, c, M, N, K, BM=64, BN=64, BK=32, num_warps=4, num_stages=3)
        return c
    if TRANSPOSE_B:
        transposed = torch.empty((BATCH, N, K), dtype=b.dtype, device=b.device)
        transpose_kernel[(triton.cdiv(K, 64), triton.cdiv(N, 64), BATCH)](b, transposed, K, N, TILE=64, num_warps=8)
        b_desc = TensorDescriptor.from_tensor(transposed, [1, BN, BK])
    else:
        b_desc = TensorDescriptor.from_tensor(b.view(BATCH, K, N), [1, BK, BN])
    parts = max(1, BM * BN * size // 32768) if STAY else 1  # of 32 KB; a program that ends has room for the whole
    bmm_kernel[(min(tiles, multiprocessors(a.device)) if STAY else tiles,)](
        TensorDescriptor.from_tensor(a.view(BATCH, M, K), [1, BM, BK]),
        b_desc,
        TensorDescriptor.from_tensor(c.view(BATCH, M, N), [1, BM, BN // parts]),
        tiles, M, N, K, BM=BM, BN=BN, BK=BK, TRANSPOSED=TRANSPOSE_B, PARTS=parts, STAY=STAY, **options,
    )  # fmt: skip
    return c


def _config(BM: int, BN: int, BK: int, warps: int, stages: int, stay: bool = False, transpose: bool = False) -> Config:
    return {
        "BM": BM, "BN": BN, "BK": BK, "TRANSPOSE_B": transpose, "STAY": stay, "num_warps": warps, "num_stages": stages
    }  # fmt: skip


TILES = [  # BM, BN, warps, stages, programs on a multiprocessor: one stays, several come and go
    (64, 64, 4, 4, 3), (64, 128, 4, 3, 3), (128, 128, 8, 3, 2), (128, 128, 4, 2, 3), (128, 256, 8, 4, 1),
]  # fmt: skip


def default(case: Case) -> Config:
    depth = 128 // case.dtype_size  # one row of a tile fills TMA's widest swizzle, 128 bytes
    if case["M"] <= 32:
        return _config(32, 32, 32, 2, 2)
    transpose = case.dtype == "fp32" and case["M"] >= 128
    if case.dtype == "fp32" and not transpose:
        return _config(64, 64, depth, 4, 4)
    BM, BN, warps, stages, per_sm = min(
        TILES, key=lambda tile: estimate_us(case, *tile[:2], tile[4], 0.5 if tile[4] == 1 else 1.5)
    )
    return _config(BM, BN, depth, warps, stages, per_sm == 1, transpose)


def space(case: Case) -> list[Config]:
    depth = 128 // case.dtype_size
    fp32 = case.dtype == "fp32"
    come = [(32, 32, 2, 2), (32, 32, 2, 3), (32, 64, 2, 2), (32, 64, 2, 3)]
    come += [(64, 64, 4, 2), (64, 64, 4, 3), (64, 64, 4, 4)]
    come += [(bm, bn, 4, stages) for bm, bn in ((64, 128), (128, 64), (128, 128)) for stages in (2, 3)]
    come += [(128, 128, 8, 2), (128, 128, 8, 3)]
    stay = [(bm, bn, 8, stages) for bm, bn in ((128, 256), (256, 128)) for stages in (3, 4)]
    small = [default(case)] if case["M"] <= 32 and not fp32 else []
    return (
        small
        + [_config(bm, bn, depth, warps, stages) for bm, bn, warps, stages in come]
        + [_config(bm, bn, depth, warps, stages, False, True) for bm, bn, warps, stages in come if fp32 and bm > 32]
        + [_config(bm, bn, depth, warps, stages, True, fp32) for bm, bn, warps, stages in stay]
    )


KERNEL = Kernel(run=run, default=default, space=space)
