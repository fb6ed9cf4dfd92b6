# operator: cross_entropy, backend: tilelang
import tilelang
import tilelang.language as T
import torch

LOG2E = 1.4426950408889634


@tilelang.jit
def loss_factory(dtype, BLOCK, threads):
    B, C = T.dynamic("B"), T.dynamic("C")

    @T.prim_func
    def loss_kernel(z: T.Tensor((B, C), dtype), t: T.Tensor((B,), T.int64), loss: T.Tensor((B,), dtype)):
        with T.Kernel(B, threads=threads) as row:
            values = T.alloc_fragment((1, BLOCK), T.float32)
            maxima = T.alloc_fragment((1, BLOCK), T.float32)
            sums = T.alloc_fragment((1, BLOCK), T.float32)
            top = T.alloc_fragment((1,), T.float32)
            total = T.alloc_fragment((1,), T.float32)
            T.fill(maxima, T.min_value(T.float32))
            T.clear(sums)
            for chunk in T.serial(T.ceildiv(C, BLOCK)):
                for i, j in T.Parallel(1, BLOCK):
                    values[i, j] = T.if_then_else(
                        chunk * BLOCK + j < C, T.cast(z[row, chunk * BLOCK + j], T.float32), -T.infinity(T.float32)
                    )
                for i, j in T.Parallel(1, BLOCK):
                    larger = T.max(maxima[i, j], values[i, j])
                    sums[i, j] = sums[i, j] * T.exp(maxima[i, j] - larger) + T.exp(values[i, j] - larger)
                    maxima[i, j] = larger
            T.reduce_max(maxima, top, dim=1)
            for i, j in T.Parallel(1, BLOCK):
                sums[i, j] = sums[i, j] * T.exp(maxima[i, j] - top[i])
            T.reduce_sum(sums, total, dim=1)
            for i in T.Parallel(1):
                loss[row] = T.cast(T.log(total[i]) + top[i] - T.cast(z[row, t[row]], T.float32), dtype)

    return loss_kernel


def cross_entropy(logits, targets):
    loss = torch.empty(logits.shape[0], dtype=logits.dtype, device=logits.device)
    loss_factory(logits.dtype, 512, 128)(logits, targets, loss)
    return loss


run = cross_entropy
