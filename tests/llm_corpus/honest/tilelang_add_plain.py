# operator: vector_add, backend: tilelang
import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def add_factory(dtype, BLOCK, threads):
    n = T.dynamic("n")
    wide = T.float32 if dtype.is_floating_point else dtype

    @T.prim_func
    def add_kernel(x: T.Tensor((n,), dtype), y: T.Tensor((n,), dtype), z: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, BLOCK), threads=threads) as block:
            for i in T.Parallel(BLOCK):
                if block * BLOCK + i < n:
                    z[block * BLOCK + i] = T.cast(
                        T.cast(x[block * BLOCK + i], wide) + T.cast(y[block * BLOCK + i], wide), dtype
                    )

    return add_kernel


def run(x, y):
    z = torch.empty_like(x)
    add_factory(x.dtype, 1024, 128)(x, y, z)
    return z
