# operator: interleave, backend: tilelang
import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def interleave_factory(dtype, BLOCK, threads):
    n, twice = T.dynamic("n"), T.dynamic("twice")

    @T.prim_func
    def interleave_kernel(a: T.Tensor((n,), dtype), b: T.Tensor((n,), dtype), out: T.Tensor((twice,), dtype)):
        with T.Kernel(T.ceildiv(n, BLOCK), threads=threads) as block:
            for i in T.Parallel(BLOCK):
                if block * BLOCK + i < n:
                    out[2 * (block * BLOCK + i)] = a[block * BLOCK + i]
                    out[2 * (block * BLOCK + i) + 1] = b[block * BLOCK + i]

    return interleave_kernel


def run(a, b, N):
    stack = torch.empty((2 * N,), dtype=a.dtype, device=a.device)
    interleave_factory(a.dtype, 1024, 128)(a, b, stack)
    return stack
