# operator: streamk_matmul, backend: tilelang
import tilelang
import tilelang.language as T
import torch

OPERAND = {torch.float32: T.tfloat32, torch.float16: T.float16, torch.bfloat16: T.bfloat16}


@tilelang.jit
def tma_factory(dtype, BM, BN, BK, stages, threads):
    M, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")
    operand = OPERAND[dtype]

    @T.prim_func
    def matmul_tma(a: T.Tensor((M, K), operand), b: T.Tensor((K, N), operand), c: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=threads) as (bn, bm):
            a_tile = T.alloc_shared((BM, BK), operand)
            b_tile = T.alloc_shared((BK, BN), operand)
            total = T.alloc_fragment((BM, BN), T.float32)
            T.use_swizzle(8)
            T.clear(total)
            for step in T.Pipelined(T.ceildiv(K, BK), num_stages=stages):
                T.copy(a[bm * BM, step * BK], a_tile)
                T.copy(b[step * BK, bn * BN], b_tile)
                T.gemm(a_tile, b_tile, total)
            T.copy(total, c[bm * BM, bn * BN])

    return matmul_tma


@tilelang.jit
def plain_factory(dtype, BM, BN, BK, threads):
    M, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")

    @T.prim_func
    def matmul_plain(a: T.Tensor((M, K), dtype), b: T.Tensor((K, N), dtype), c: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=threads) as (bn, bm):
            a_tile = T.alloc_shared((BM, BK), dtype)
            b_tile = T.alloc_shared((BK, BN), dtype)
            total = T.alloc_fragment((BM, BN), T.float32)
            T.clear(total)
            for step in T.serial(T.ceildiv(K, BK)):
                T.copy(a[bm * BM, step * BK], a_tile, disable_tma=True)
                T.copy(b[step * BK, bn * BN], b_tile, disable_tma=True)
                T.gemm(a_tile, b_tile, total)
            T.copy(total, c[bm * BM, bn * BN], disable_tma=True)

    return matmul_plain


def run(a, b):
    m, k = a.shape
    n = b.shape[1]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    size = a.element_size()
    if k * size % 16 == 0 and n * size % 16 == 0:
        tma_factory(a.dtype, 128, 128, 128 // size, 3, 256)(a, b, c)
    else:
        plain_factory(a.dtype, 64, 64, 32, 128)(a, b, c)
    return c
