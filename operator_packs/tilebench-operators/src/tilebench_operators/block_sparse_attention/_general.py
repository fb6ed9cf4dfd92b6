"""Block-sparse causal attention in TileLang for GPUs without WGMMA: a block owns one row block of one head.

It shares the options of the compiler with the kernel for WGMMA, so its barriers are written out too. Tiles are 64 × 64, so
a block is small (one warp group multiplies), and three share a multiprocessor, which hides the waits for a list entry and
then for the key block that it names.
"""

import tilelang.language as T
import torch

THREADS = 128


def attention_function(dtype: torch.dtype, D: int, BLOCK_M: int, BLOCK_N: int) -> T.PrimFunc:
    """q, o [B·H, M, D], k, v [B·H_kv, M, D]; crow [num_layout·(rows + 1)], col [num_layout·rows·cols].

    Rows beyond M load as zeros and are not stored; keys beyond M are right of the diagonal of every stored row.
    `programs` is what the kernel for WGMMA needs.
    """
    heads_q, heads_kv, M = T.dynamic("heads_q"), T.dynamic("heads_kv"), T.dynamic("M")
    crow_size, col_size = T.dynamic("crow_size"), T.dynamic("col_size")

    @T.prim_func
    def block_sparse_attention(
        q: T.Tensor((heads_q, M, D), dtype),
        k: T.Tensor((heads_kv, M, D), dtype),
        v: T.Tensor((heads_kv, M, D), dtype),
        o: T.Tensor((heads_q, M, D), dtype),
        crow: T.Tensor((crow_size,), T.int32),
        col: T.Tensor((col_size,), T.int32),
        crow_stride: T.int32,
        col_stride: T.int32,
        num_layout: T.int32,
        heads: T.int32,
        group: T.int32,
        scale: T.float32,
        programs: T.int32,
    ):
        with T.Kernel(T.ceildiv(M, BLOCK_M), heads_q, threads=THREADS) as (row, head):
            T.assume(num_layout > 0)
            T.assume(heads > 0)
            T.assume(group > 0)
            T.annotate_min_blocks_per_sm(3)  # limits the registers of a thread
            q_tile = T.alloc_shared((BLOCK_M, D), dtype)
            k_tile = T.alloc_shared((BLOCK_N, D), dtype)
            v_tile = T.alloc_shared((BLOCK_N, D), dtype)
            o_tile = T.alloc_shared((BLOCK_M, D), dtype)
            scores = T.alloc_fragment((BLOCK_M, BLOCK_N), T.float32)
            p = T.alloc_fragment((BLOCK_M, BLOCK_N), dtype)
            result = T.alloc_fragment((BLOCK_M, D), T.float32)
            maximum = T.alloc_fragment((BLOCK_M,), T.float32)
            previous = T.alloc_fragment((BLOCK_M,), T.float32)
            shrink = T.alloc_fragment((BLOCK_M,), T.float32)
            part = T.alloc_fragment((BLOCK_M,), T.float32)
            total = T.alloc_fragment((BLOCK_M,), T.float32)
            # Variables: expressions would be computed again at every use.
            start, length = T.alloc_var(T.int32), T.alloc_var(T.int32)
            layout = head % heads % num_layout
            start = crow[layout * crow_stride + row]
            length = crow[layout * crow_stride + row + 1] - start
            start = start + layout * col_stride

            T.copy(q[head, row * BLOCK_M, 0], q_tile)
            T.clear(result)
            T.clear(total)
            T.fill(maximum, -1.0e30)  # finite, so that a row without keys yields no inf - inf
            # A block that ended while its tile of q is still on the way would leave the load to write into other
            # data. So an empty list is walked as one diagonal block, of which the mask hides everything.
            for entry in T.serial(T.max(length, 1)):
                n = T.if_then_else(length > 0, col[start + entry], row)
                T.sync_threads()  # until the last step's tiles are used
                T.copy(k[head // group, n * BLOCK_N, 0], k_tile)
                T.copy(v[head // group, n * BLOCK_N, 0], v_tile)
                T.sync_threads()
                T.gemm(q_tile, k_tile, scores, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                if (n + 1) * BLOCK_N > row * BLOCK_M:  # the diagonal block
                    for i, j in T.Parallel(BLOCK_M, BLOCK_N):
                        scores[i, j] = T.if_then_else(
                            length > 0 and row * BLOCK_M + i >= n * BLOCK_N + j, scores[i, j], -T.infinity(T.float32)
                        )
                T.copy(maximum, previous)
                T.reduce_max(scores, maximum, dim=1, clear=False)
                for i in T.Parallel(BLOCK_M):
                    shrink[i] = T.exp2((previous[i] - maximum[i]) * scale)
                for i, j in T.Parallel(BLOCK_M, BLOCK_N):
                    scores[i, j] = T.exp2(scores[i, j] * scale - maximum[i] * scale)  # `scale` holds log2 e
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(BLOCK_M):
                    total[i] = total[i] * shrink[i] + part[i]
                T.copy(scores, p)
                for i, j in T.Parallel(BLOCK_M, D):
                    result[i, j] *= shrink[i]
                T.gemm(p, v_tile, result, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(BLOCK_M, D):
                result[i, j] *= 1 / T.if_then_else(total[i] > 0, total[i], 1.0)
            T.copy(result, o_tile)
            T.fence_proxy_async()
            T.sync_threads()
            T.copy(o_tile, o[head, row * BLOCK_M, 0])

    return block_sparse_attention
