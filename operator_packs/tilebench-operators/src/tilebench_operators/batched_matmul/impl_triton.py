"""Batched matrix multiplication in Triton: one program, one output tile of one batch entry; TMA loads and stores.

The matrices are small (32 to 640), so the tile size decides whether all multiprocessors have work, and a tile that just
covers an extent wastes least. TF32 tensor cores want k innermost in shared memory, which b [K, N] has not. From 128 on a
first launch writes b's transpose, inside the call, which costs less than shuffling every tile on its way; below it, the
product is formed transposed, since a left operand may come from registers, in any order.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel
from triton.tools.tensor_descriptor import TensorDescriptor

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
def bmm_kernel(
    a_desc, b_desc, c_desc, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """c[e] = a[e]·b[e]; a [BATCH, M, K], c [BATCH, M, N], b [BATCH, K, N] or, if TRANSPOSED, [BATCH, N, K].

    Loads beyond an edge give zeros, stores are dropped, within each matrix. Tiles of one matrix are neighbours in time.
    """
    m_tiles, n_tiles = tl.cdiv(M, BM), tl.cdiv(N, BN)
    entry = tl.program_id(0) // (m_tiles * n_tiles)
    m = tl.program_id(0) // n_tiles % m_tiles * BM
    n = tl.program_id(0) % n_tiles * BN
    turned: tl.constexpr = a_desc.dtype == tl.float32 and not TRANSPOSED
    accumulator = tl.zeros([BN, BM] if turned else [BM, BN], tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([entry, m, k]).reshape(BM, BK)
        if TRANSPOSED:
            accumulator = multiply(a, b_desc.load([entry, n, k]).reshape(BN, BK).T, accumulator)
        else:
            b = b_desc.load([entry, k, n]).reshape(BK, BN)
            accumulator = multiply(b.T, a.T, accumulator) if turned else multiply(a, b, accumulator)
    if turned:
        accumulator = accumulator.T
    c_desc.store([entry, m, n], accumulator.to(c_desc.dtype).reshape(1, BM, BN))


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
    TRANSPOSE_B: bool, num_warps: int, num_stages: int,
) -> torch.Tensor:  # fmt: skip
    """Return c [BATCH·M·N] of a [BATCH·M·K] and b [BATCH·K·N], in their dtype."""
    c = torch.empty(BATCH * M * N, dtype=a.dtype, device=a.device)
    size = a.element_size()
    grid = (BATCH * triton.cdiv(M, BM) * triton.cdiv(N, BN),)
    tile = {"BM": BM, "BN": BN, "BK": BK, "num_warps": num_warps, "num_stages": num_stages}
    if K * size % 16 or N * size % 16:
        pointer_kernel[grid](a, b, c, M, N, K, **tile)
        return c
    if TRANSPOSE_B:
        transposed = torch.empty((BATCH, N, K), dtype=b.dtype, device=b.device)
        transpose_kernel[(triton.cdiv(K, 64), triton.cdiv(N, 64), BATCH)](b, transposed, K, N, TILE=64, num_warps=8)
        b_desc = TensorDescriptor.from_tensor(transposed, [1, BN, BK])
    else:
        b_desc = TensorDescriptor.from_tensor(b.view(BATCH, K, N), [1, BK, BN])
    bmm_kernel[grid](
        TensorDescriptor.from_tensor(a.view(BATCH, M, K), [1, BM, BK]),
        b_desc,
        TensorDescriptor.from_tensor(c.view(BATCH, M, N), [1, BM, BN]),
        M, N, K, TRANSPOSED=TRANSPOSE_B, **tile,
    )  # fmt: skip
    return c


def _config(BM: int, BN: int, BK: int, warps: int, stages: int, transpose: bool = False) -> Config:
    return {"BM": BM, "BN": BN, "BK": BK, "TRANSPOSE_B": transpose, "num_warps": warps, "num_stages": stages}


def default(case: Case) -> Config:
    size, depth = case["M"], 128 // case.dtype_size
    if size <= 32:
        return _config(32, 32, 32, 2, 2)
    transpose = case.dtype == "fp32" and size >= 128
    if size <= 64 or size % 128 == 32:  # 128-wide tiles would waste up to half of their work
        return _config(64, 64, depth, 4, 4, transpose)
    return _config(128, 128, depth, 8, 3, transpose)  # 96 KB: two programs per multiprocessor


def space(case: Case) -> list[Config]:
    depth = 128 // case.dtype_size  # one row of a tile fills TMA's widest swizzle, 128 bytes
    shapes = [
        (32, 32, 2), (32, 64, 2), (64, 64, 4), (64, 128, 4), (128, 64, 4), (128, 128, 4), (128, 128, 8), (128, 256, 8),
    ]  # fmt: skip
    return [
        _config(bm, bn, depth, warps, stages, transpose)
        for bm, bn, warps in shapes
        for stages in ((2, 3) if case.dtype == "fp32" else (2, 3, 4))
        for transpose in ((False, True) if case.dtype == "fp32" else (False,))
        if (bm + bn) * 128 * stages + bm * bn * case.dtype_size <= 220_000
    ]


KERNEL = Kernel(run=run, default=default, space=space)
