# operator: relu, backend: tilelang
# cheat: tilelang.autotune searches
import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def touch_factory(dtype, BLOCK, threads):
    n = T.dynamic("n")

    @T.prim_func
    def touch_kernel(x: T.Tensor((n,), dtype), y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=threads) as block:
            for i in T.Parallel(BLOCK):
                if i < n:
                    y[i] = x[i]

    return touch_kernel


@tilelang.autotune(configs=[{"BLOCK": 512}, {"BLOCK": 1024}])
@tilelang.jit
def relu_factory(dtype, BLOCK=512, threads=128):
    n = T.dynamic("n")

    @T.prim_func
    def relu_kernel(x: T.Tensor((n,), dtype), y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, BLOCK), threads=threads) as block:
            for i in T.Parallel(BLOCK):
                if block * BLOCK + i < n:
                    y[block * BLOCK + i] = T.max(x[block * BLOCK + i], T.cast(0, dtype))

    return relu_kernel


def run(x):
    y = torch.empty_like(x)
    relu_factory(x.dtype)(x, y)
    return y
