"""Block-sparse causal attention in TileLang: a block owns one row block of PACK heads and walks its listed key blocks.

Most of the traffic between the L2 cache and the multiprocessors is keys and values: each block of them is wanted by
three row blocks of every head. Heads that share keys, values and lists are stacked to one tile of PACK·BLOCK_M rows.
One warp group multiplies, and several blocks share a multiprocessor, which hides the waits for a list entry and then
for the key block that it names. Lists are short (three blocks), so there is little to gain from a second warp group
that only loads: the threads load the next block (cp.async) while they work on this one.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Device, Kernel

LOG2_E = 1.4426950408889634


@tilelang.jit(
    pass_configs={
        tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True,
        tilelang.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True,
    }
)
def attention_kernel(dtype: torch.dtype, D: int, BLOCK_M: int, BLOCK_N: int, pack: int, threads: int, per_sm: int):
    """q, o [B·H, M, D], k, v [B·H_kv, M, D]; crow [num_layout·(rows + 1)], col [num_layout·rows·cols].

    Rows beyond M load as zeros and are not stored; keys beyond M are right of the diagonal of every stored row.
    """
    heads_q, heads_kv, M = T.dynamic("heads_q"), T.dynamic("heads_kv"), T.dynamic("M")
    crow_size, col_size = T.dynamic("crow_size"), T.dynamic("col_size")
    ROWS = pack * BLOCK_M

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
        kv_heads: T.int32,
        scale: T.float32,
    ):
        with T.Kernel(T.ceildiv(M, BLOCK_M), heads_q // pack, threads=threads) as (row, stack):
            T.assume(num_layout > 0)
            T.assume(heads > 0)
            T.assume(kv_heads > 0)
            T.assume(heads >= kv_heads)
            T.annotate_min_blocks_per_sm(per_sm)  # limits the registers of a thread
            q_tile = T.alloc_shared((ROWS, D), dtype)
            k_tile = T.alloc_shared((BLOCK_N, D), dtype)
            v_tile = T.alloc_shared((BLOCK_N, D), dtype)
            o_tile = T.alloc_shared((ROWS, D), dtype)
            scores = T.alloc_fragment((ROWS, BLOCK_N), T.float32)
            p = T.alloc_fragment((ROWS, BLOCK_N), dtype)
            result = T.alloc_fragment((ROWS, D), T.float32)
            maximum = T.alloc_fragment((ROWS,), T.float32)
            previous = T.alloc_fragment((ROWS,), T.float32)
            shrink = T.alloc_fragment((ROWS,), T.float32)
            part = T.alloc_fragment((ROWS,), T.float32)
            total = T.alloc_fragment((ROWS,), T.float32)
            # Variables: expressions would be computed again at every use.
            kv_head, start, length = T.alloc_var(T.int32), T.alloc_var(T.int32), T.alloc_var(T.int32)
            head = stack * pack
            kv_head = head // heads * kv_heads + head % heads // (heads // kv_heads)
            layout = head % heads % num_layout
            start = crow[layout * crow_stride + row]
            length = crow[layout * crow_stride + row + 1] - start
            start = start + layout * col_stride

            if pack == 1:
                T.copy(q[head, row * BLOCK_M, 0], q_tile)
            else:
                for i, j in T.Parallel(ROWS, D):
                    q_tile[i, j] = T.if_then_else(
                        row * BLOCK_M + i % BLOCK_M < M, q[head + i // BLOCK_M, row * BLOCK_M + i % BLOCK_M, j], 0
                    )
            T.clear(result)
            T.clear(total)
            T.fill(maximum, -1.0e30)  # finite, so that a row without keys yields no inf - inf
            # A block that ended while its tile of q is still on the way would leave the load to write into other
            # data. So an empty list is walked as one diagonal block, of which the mask hides everything.
            for entry in T.Pipelined(T.max(length, 1), num_stages=1):  # no deeper: its length is unknown
                n = T.if_then_else(length > 0, col[start + entry], row)
                T.copy(k[kv_head, n * BLOCK_N, 0], k_tile)
                T.gemm(q_tile, k_tile, scores, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                if (n + 1) * BLOCK_N > row * BLOCK_M:  # the diagonal block
                    for i, j in T.Parallel(ROWS, BLOCK_N):
                        scores[i, j] = T.if_then_else(
                            length > 0 and row * BLOCK_M + i % BLOCK_M >= n * BLOCK_N + j,
                            scores[i, j],
                            -T.infinity(T.float32),
                        )
                T.copy(maximum, previous)
                T.reduce_max(scores, maximum, dim=1, clear=False)
                for i in T.Parallel(ROWS):
                    shrink[i] = T.exp2((previous[i] - maximum[i]) * scale)
                for i, j in T.Parallel(ROWS, BLOCK_N):
                    scores[i, j] = T.exp2(scores[i, j] * scale - maximum[i] * scale)  # `scale` holds log2 e
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(ROWS):
                    total[i] = total[i] * shrink[i] + part[i]
                T.copy(scores, p)
                for i, j in T.Parallel(ROWS, D):
                    result[i, j] *= shrink[i]
                T.copy(v[kv_head, n * BLOCK_N, 0], v_tile)
                T.gemm(p, v_tile, result, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(ROWS, D):
                result[i, j] *= 1 / T.if_then_else(total[i] > 0, total[i], 1.0)
            T.copy(result, o_tile)
            if pack == 1:
                T.copy(o_tile, o[head, row * BLOCK_M, 0])
            else:
                for i, j in T.Parallel(ROWS, D):
                    if row * BLOCK_M + i % BLOCK_M < M:
                        o[head + i // BLOCK_M, row * BLOCK_M + i % BLOCK_M, j] = o_tile[i, j]

    return block_sparse_attention


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout_crow: torch.Tensor, layout_col: torch.Tensor,
    layout_crow_stride: int, layout_col_stride: int, num_layout: int, softmax_scale: float, num_heads: int,
    num_kv_heads: int, M: int, BLOCK_M: int, EVEN_M: bool, BLOCK_N: int, EVEN_N: bool, BLOCK_D: int,
    NUM_D_BLOCKS: int, *, PACK: int, THREADS: int, PER_SM: int,
) -> torch.Tensor:  # fmt: skip
    """Return o [B, H, M, D]; q [B, H, M, D], k and v [B, H_kv, M, D]."""
    if PACK > 1 and (num_layout > 1 or num_heads // num_kv_heads % PACK):
        raise ValueError(f"{PACK} heads do not share their keys and lists")
    o = torch.empty_like(q)
    D = BLOCK_D * NUM_D_BLOCKS
    heads = [tensor.view(-1, M, D) for tensor in (q, k, v, o)]
    attention_kernel(q.dtype, D, BLOCK_M, BLOCK_N, PACK, THREADS, PER_SM)(
        *heads, layout_crow, layout_col, layout_crow_stride, layout_col_stride, num_layout, num_heads, num_kv_heads,
        softmax_scale * LOG2_E,
    )  # fmt: skip
    return o


def _config(pack: int, threads: int, per_sm: int) -> Config:
    return {"PACK": pack, "THREADS": threads, "PER_SM": per_sm}


def _packs(case: Case) -> list[int]:
    """How many heads can be stacked."""
    return [1, 2] if case["num_layout"] == 1 and case["H"] // case["H_kv"] % 2 == 0 else [1]


def default(case: Case) -> Config:
    blocks = -(-case["M"] // case["block"]) * case["B"] * case["H"]
    # As long as three blocks to each of 132 multiprocessors cover all, more of them are faster than larger ones.
    return _config(2, 128, 2) if blocks > 396 and 2 in _packs(case) else _config(1, 128, 3)


def space(case: Case) -> list[Config]:
    shapes = [(1, 128, 2), (1, 128, 3), (2, 128, 2), (2, 256, 1), (2, 256, 2)]
    return [_config(*shape) for shape in shapes if shape[0] in _packs(case)]


def unsupported(case: Case, device: Device) -> str | None:
    if device.capability < (9, 0):
        return "TileLang 0.1.15 pipelines a loop of unknown length only where there is TMA (compute capability 9.0)"
    return None


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
