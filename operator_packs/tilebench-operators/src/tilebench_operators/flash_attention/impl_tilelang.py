"""Causal attention in TileLang: online softmax over key blocks, TMA loads, the causal mask on diagonal blocks only.

A block owns BM query rows of one head. Blocks of one head run side by side, so its keys and values come from the L2
cache, and start with the last rows, which have most keys: short blocks fill the gaps at the end.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Device, Kernel

LOG2_E = 1.4426950408889634


@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def attention_kernel(dtype: torch.dtype, D: int, BM: int, BN: int, stages: int, threads: int):
    """q, k, v, o [BH, S, D]; BM is a multiple of BN. Rows beyond S load as zeros and are not stored."""
    BH, S = T.dynamic("BH"), T.dynamic("S")
    scale = D**-0.5 * LOG2_E  # exp(x) is exp2(x·log2 e): the multiplication and the subtraction fuse

    @T.prim_func
    def attention(
        q: T.Tensor((BH, S, D), dtype),
        k: T.Tensor((BH, S, D), dtype),
        v: T.Tensor((BH, S, D), dtype),
        o: T.Tensor((BH, S, D), dtype),
    ):
        with T.Kernel(T.ceildiv(S, BM), BH, threads=threads) as (block, head):
            q_tile = T.alloc_shared((BM, D), dtype)
            k_tile = T.alloc_shared((BN, D), dtype)
            v_tile = T.alloc_shared((BN, D), dtype)
            o_tile = T.alloc_shared((BM, D), dtype)
            scores = T.alloc_fragment((BM, BN), T.float32)
            p = T.alloc_fragment((BM, BN), dtype)
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
            for step in T.Pipelined((top + BM) // BN, num_stages=stages):
                T.copy(k[head, step * BN, 0], k_tile)
                T.gemm(q_tile, k_tile, scores, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                # Keys beyond S lie right of the diagonal of every row that is stored, so one mask serves both.
                if (step + 1) * BN > top:
                    for i, j in T.Parallel(BM, BN):
                        scores[i, j] = T.if_then_else(top + i >= step * BN + j, scores[i, j], -T.infinity(T.float32))
                T.copy(maximum, previous)
                T.reduce_max(scores, maximum, dim=1, clear=False)
                for i in T.Parallel(BM):
                    shrink[i] = T.exp2((previous[i] - maximum[i]) * scale)
                for i, j in T.Parallel(BM, BN):
                    scores[i, j] = T.exp2(scores[i, j] * scale - maximum[i] * scale)
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(BM):
                    total[i] = total[i] * shrink[i] + part[i]
                T.copy(scores, p)
                for i, j in T.Parallel(BM, D):
                    result[i, j] *= shrink[i]
                T.copy(v[head, step * BN, 0], v_tile)
                T.gemm(p, v_tile, result, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(BM, D):
                result[i, j] *= 1 / total[i]
            T.copy(result, o_tile)
            T.copy(o_tile, o[head, top, 0])

    return attention


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, BM: int, BN: int, stages: int, threads: int
) -> torch.Tensor:
    """Return o [B, H, S, D] of q, k, v [B, H, S, D]."""
    B, H, S, D = q.shape
    o = torch.empty_like(q)
    heads = [tensor.view(B * H, S, D) for tensor in (q, k, v, o)]
    attention_kernel(q.dtype, D, BM, BN, stages, threads)(*heads)
    return o


def _config(BM: int, BN: int, stages: int, threads: int) -> Config:
    return {"BM": BM, "BN": BN, "stages": stages, "threads": threads}


def default(case: Case) -> Config:
    return _config(128, 128, 2, 256)


def space(case: Case) -> list[Config]:
    shapes = [(64, 64, 128), (64, 128, 128), (128, 64, 256), (128, 128, 256)]
    return [_config(bm, bn, stages, threads) for bm, bn, threads in shapes for stages in (1, 2, 3)]


def unsupported(case: Case, device: Device) -> str | None:
    if device.capability < (9, 0):
        return "TileLang 0.1.15 pipelines a loop of unknown length only where there is TMA (compute capability 9.0)"
    return None


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
