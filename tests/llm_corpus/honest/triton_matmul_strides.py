# operator: matmul_fp32_fp16_fp8, backend: triton
import torch
import triton
import triton.language as tl

# (BM, BN, BK, warps, stages) by bytes per element
TILES = {4: (64, 64, 32, 4, 3), 2: (64, 64, 32, 4, 4), 1: (64, 64, 64, 4, 3)}


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    n = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(
            a_ptr + m[:, None] * stride_am + k[None, :] * stride_ak, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0
        )
        b = tl.load(
            b_ptr + k[:, None] * stride_bk + n[None, :] * stride_bn, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0
        )
        acc += tl.dot(a, b)
    if c_ptr.dtype.element_ty == tl.float8e4nv:
        acc = tl.minimum(tl.maximum(acc, -448.0), 448.0)
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + m[:, None] * stride_cm + n[None, :], c, mask=(m[:, None] < M) & (n[None, :] < N))


def run(a, b):
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"a is {tuple(a.shape)} and b is {tuple(b.shape)}")
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    BM, BN, BK, warps, stages = TILES[a.element_size()]
    matmul_kernel[(triton.cdiv(M, BM), triton.cdiv(N, BN))](
        a, b, c, M, N, K, *a.stride(), *b.stride(), c.stride(0), BM=BM, BN=BN, BK=BK, num_warps=warps, num_stages=stages
    )
    return c
