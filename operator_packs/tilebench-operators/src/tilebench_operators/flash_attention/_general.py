"""Causal attention in TileLang for GPUs without WGMMA: every step loads, waits, multiplies and waits.

It shares the options of the compiler with the kernel for WGMMA, so its barriers are written out too. A block owns BM query
rows of one head. Blocks of one head run side by side, so its keys and values come from the L2 cache, and start with the last
rows, which have most keys: short blocks fill the gaps at the end.
"""

import tilelang.language as T
import torch

LOG2_E = 1.4426950408889634


def attention_function(dtype: torch.dtype, D: int, BM: int) -> T.PrimFunc:
    """q, k, v, o [BH, S, D]. Rows beyond S load as zeros and are not stored."""
    BH, S = T.dynamic("BH"), T.dynamic("S")
    scale = D**-0.5 * LOG2_E  # exp(x) is exp2(x·log2 e): the multiplication and the subtraction fuse

    @T.prim_func
    def attention(
        q: T.Tensor((BH, S, D), dtype),
        k: T.Tensor((BH, S, D), dtype),
        v: T.Tensor((BH, S, D), dtype),
        o: T.Tensor((BH, S, D), dtype),
    ):
        with T.Kernel(T.ceildiv(S, BM), BH, threads=2 * BM) as (block, head):
            q_tile = T.alloc_shared((BM, D), dtype)
            k_tile = T.alloc_shared((BM, D), dtype)
            v_tile = T.alloc_shared((BM, D), dtype)
            o_tile = T.alloc_shared((BM, D), dtype)
            scores = T.alloc_fragment((BM, BM), T.float32)
            p = T.alloc_fragment((BM, BM), dtype)
            result = T.alloc_fragment((BM, D), T.float32)
            maximum = T.alloc_fragment((BM,), T.float32)
            previous = T.alloc_fragment((BM,), T.float32)
            shrink = T.alloc_fragment((BM,), T.float32)
            part = T.alloc_fragment((BM,), T.float32)
            total = T.alloc_fragment((BM,), T.float32)
            top = (T.ceildiv(S, BM) - 1 - block) * BM

            T.copy(q[head, top, 0], q_tile)
            T.clear(result)
            T.clear(total)
            T.fill(maximum, -T.infinity(T.float32))
            for step in T.serial(top // BM + 1):
                T.sync_threads()  # until the last step's tiles are used
                T.copy(k[head, step * BM, 0], k_tile)
                T.copy(v[head, step * BM, 0], v_tile)
                T.sync_threads()
                T.gemm(q_tile, k_tile, scores, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                # Keys beyond S lie right of the diagonal of every row that is stored, so one mask serves both.
                if step * BM == top:
                    for i, j in T.Parallel(BM, BM):
                        scores[i, j] = T.if_then_else(top + i >= step * BM + j, scores[i, j], -T.infinity(T.float32))
                T.copy(maximum, previous)
                T.reduce_max(scores, maximum, dim=1, clear=False)
                for i in T.Parallel(BM):
                    shrink[i] = T.exp2((previous[i] - maximum[i]) * scale)
                for i, j in T.Parallel(BM, BM):
                    scores[i, j] = T.exp2(scores[i, j] * scale - maximum[i] * scale)
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(BM):
                    total[i] = total[i] * shrink[i] + part[i]
                T.copy(scores, p)
                for i, j in T.Parallel(BM, D):
                    result[i, j] *= shrink[i]
                T.gemm(p, v_tile, result, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(BM, D):
                result[i, j] *= 1 / total[i]
            T.copy(result, o_tile)
            T.fence_proxy_async()
            T.sync_threads()
            T.copy(o_tile, o[head, top, 0])

    return attention
