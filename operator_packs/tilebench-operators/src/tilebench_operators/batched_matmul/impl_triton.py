"""Batched matrix multiplication in Triton: one program, one output tile of one batch entry; TMA loads and stores.

The matrices are small (32 to 640), so the tile size decides whether all multiprocessors have work, and a tile that just
covers an extent wastes least. b is read as it is. TF32 tensor cores want k innermost in shared memory, which b has not;
but a left operand may come from registers, in any order. So in fp32 the product is formed transposed, b.T on the left.
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
def bmm_kernel(a_desc, b_desc, c_desc, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c[e] = a[e]·b[e]; a [BATCH, M, K], b [BATCH, K, N], c [BATCH, M, N].

    Loads beyond an edge give zeros, stores are dropped, within each matrix. Tiles of one matrix are neighbours in time.
    """
    m_tiles, n_tiles = tl.cdiv(M, BM), tl.cdiv(N, BN)
    entry = tl.program_id(0) // (m_tiles * n_tiles)
    m = tl.program_id(0) // n_tiles % m_tiles * BM
    n = tl.program_id(0) % n_tiles * BN
    transposed: tl.constexpr = a_desc.dtype == tl.float32
    accumulator = tl.zeros([BN, BM] if transposed else [BM, BN], tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([entry, m, k]).reshape(BM, BK)
        b = b_desc.load([entry, k, n]).reshape(BK, BN)
        accumulator = multiply(b.T, a.T, accumulator) if transposed else multiply(a, b, accumulator)
    if transposed:
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
    num_warps: int, num_stages: int,
) -> torch.Tensor:  # fmt: skip
    """Return c [BATCH·M·N] of a [BATCH·M·K] and b [BATCH·K·N], in their dtype."""
    c = torch.empty(BATCH * M * N, dtype=a.dtype, device=a.device)
    size = a.element_size()
    grid = (BATCH * triton.cdiv(M, BM) * triton.cdiv(N, BN),)
    tile = {"BM": BM, "BN": BN, "BK": BK, "num_warps": num_warps, "num_stages": num_stages}
    if K * size % 16 or N * size % 16:
        pointer_kernel[grid](a, b, c, M, N, K, **tile)
        return c
    bmm_kernel[grid](
        TensorDescriptor.from_tensor(a.view(BATCH, M, K), [1, BM, BK]),
        TensorDescriptor.from_tensor(b.view(BATCH, K, N), [1, BK, BN]),
        TensorDescriptor.from_tensor(c.view(BATCH, M, N), [1, BM, BN]),
        M, N, K, **tile,
    )  # fmt: skip
    return c


def _config(BM: int, BN: int, BK: int, warps: int, stages: int) -> Config:
    return {"BM": BM, "BN": BN, "BK": BK, "num_warps": warps, "num_stages": stages}


def default(case: Case) -> Config:
    size, depth = case["M"], 128 // case.dtype_size
    if size <= 32:
        return _config(32, 32, 32, 2, 2)
    if size <= 64 or size % 128 == 32:  # 128-wide tiles would waste up to half of their work
        return _config(64, 64, depth, 4, 4)
    return _config(128, 128, depth, 8, 3)  # 96 KB: two programs per multiprocessor


def space(case: Case) -> list[Config]:
    depth = 128 // case.dtype_size  # one row of a tile fills TMA's widest swizzle, 128 bytes
    shapes = [
        (32, 32, 1), (32, 32, 2), (32, 64, 2), (64, 32, 4), (64, 64, 4), (64, 128, 4), (128, 64, 4), (128, 64, 8),
        (128, 128, 4), (128, 128, 8), (64, 256, 4), (128, 256, 8),
    ]  # fmt: skip
    return [_config(bm, bn, depth, warps, stages) for bm, bn, warps in shapes for stages in (2, 3, 4)
            if (bm + bn) * 128 * stages + bm * bn * case.dtype_size <= 220_000]  # fmt: skip


KERNEL = Kernel(run=run, default=default, space=space)
