# operator: matrix_transpose, backend: tilelang
import tilelang
import tilelang.language as T
import torch

KERNELS = {}


@tilelang.jit
def transpose_factory(dtype, TILE, threads):
    M, N = T.dynamic("M"), T.dynamic("N")

    @T.prim_func
    def transpose_kernel(x: T.Tensor((M, N), dtype), y: T.Tensor((N, M), dtype)):
        with T.Kernel(T.ceildiv(N, TILE), T.ceildiv(M, TILE), threads=threads) as (bn, bm):
            tile = T.alloc_shared((TILE, TILE + 1), dtype)
            for i, j in T.Parallel(TILE, TILE):
                if bm * TILE + i < M and bn * TILE + j < N:
                    tile[i, j] = x[bm * TILE + i, bn * TILE + j]
            for j, i in T.Parallel(TILE, TILE):
                if bm * TILE + i < M and bn * TILE + j < N:
                    y[bn * TILE + j, bm * TILE + i] = tile[i, j]

    return transpose_kernel


def transpose(x):
    m, n = x.shape
    y = torch.empty((n, m), dtype=x.dtype, device=x.device)
    key = (x.dtype, 32)  # compiled code, by dtype and tile
    kernel = KERNELS.get(key)
    if kernel is None:
        kernel = KERNELS[key] = transpose_factory(x.dtype, 32, 256)
    kernel(x, y)
    return y


def run(x):
    return transpose(x)
