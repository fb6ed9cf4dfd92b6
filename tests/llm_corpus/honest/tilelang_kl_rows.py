# operator: kl_divergence, backend: tilelang
import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def kl_factory(BLOCK, threads):
    rows, cols = T.dynamic("rows"), T.dynamic("cols")

    @T.prim_func
    def kl_kernel(
        predicted: T.Tensor((rows, cols), T.float32),
        true: T.Tensor((rows, cols), T.float32),
        loss: T.Tensor((rows,), T.float32),
    ):
        with T.Kernel(rows, threads=threads) as row:
            sums = T.alloc_fragment((1, BLOCK), T.float32)
            total = T.alloc_fragment((1,), T.float32)
            T.clear(sums)
            for chunk in T.serial(T.ceildiv(cols, BLOCK)):
                for i, j in T.Parallel(1, BLOCK):
                    c = chunk * BLOCK + j
                    t = T.if_then_else(c < cols, true[row, c], 0)
                    p = T.if_then_else(c < cols, predicted[row, c], 0)
                    sums[i, j] += T.if_then_else(t > 0, t * (T.log(T.max(t, 1e-45)) - p), 0)
            T.reduce_sum(sums, total, dim=1)
            for i in T.Parallel(1):
                loss[row] = total[i]

    return kl_kernel


def kl_div(log_predicted, true):
    loss = torch.empty(true.size(0), dtype=true.dtype, device=true.device)
    kl_factory(1024, 128)(log_predicted, true, loss)
    return loss


def run(log_predicted, true):
    return kl_div(log_predicted, true)
