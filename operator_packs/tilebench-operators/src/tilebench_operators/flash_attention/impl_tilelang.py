"""Causal attention in TileLang: online softmax over key blocks, one block of scores ahead of the product with the values.

A block owns BM query rows of one head, 64 for each warp group that computes; one more warp group loads keys and values
by TMA into rings of `stages` tiles. It starts with the diagonal block of keys, the only one that needs the mask, and
then walks the others. A step multiplies q by the next keys first and the *previous* weights by their values next, so
that the tensor cores work on the second product while the softmax of the new scores runs. The products are issued
without waiting (T.wgmma_gemm), which leaves waits and barriers to this file. The warp groups don't wait for each other:
one multiplies while the other takes exponentials.

Blocks of one head run side by side, so its keys and values come from the L2 cache, and start with the last rows, which
have most keys: short blocks fill the gaps at the end. GPUs without WGMMA run the kernel of _general.py.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Device, Kernel

from tilebench_operators._tilelang_matmul import LOADER_REGISTERS, LOADER_THREADS, worker_registers
from tilebench_operators._tilelang_wgmma import has_wgmma
from tilebench_operators.flash_attention import _general

LOG2_E = 1.4426950408889634
FULL_ROW = T.GemmWarpPolicy.FullRow  # a warp group has whole rows, so that their maximum needs no other


@tilelang.jit(
    pass_configs={
        tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True,
        # Warp groups and their barriers are written out here. The compiler would add a barrier for all threads between
        # the loads and the products, which run at the same time, and tiles could share memory.
        tilelang.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True,
        tilelang.PassConfigKey.TL_DISABLE_THREAD_STORAGE_SYNC: True,
        tilelang.PassConfigKey.TL_DISABLE_SHARED_MEMORY_REUSE: True,
    }
)
def attention_kernel(dtype: torch.dtype, D: int, BM: int, stages: int):
    """q, k, v, o [BH, S, D]. Rows beyond S load as zeros and are not stored."""
    if not has_wgmma():
        return _general.attention_function(dtype, D, BM)
    BH, S = T.dynamic("BH"), T.dynamic("S")
    scale = D**-0.5 * LOG2_E  # exp(x) is exp2(x·log2 e): the multiplication and the subtraction fuse
    workers = 2 * BM  # threads: 128 for 64 rows
    groups = workers // 128
    registers = worker_registers(workers, 1)

    @T.prim_func
    def attention(
        q: T.Tensor((BH, S, D), dtype),
        k: T.Tensor((BH, S, D), dtype),
        v: T.Tensor((BH, S, D), dtype),
        o: T.Tensor((BH, S, D), dtype),
    ):
        with T.Kernel(T.ceildiv(S, BM), BH, threads=workers + LOADER_THREADS) as (block, head):
            q_tile = T.alloc_shared((BM, D), dtype)
            k_tile = T.alloc_shared((stages, BM, D), dtype)
            v_tile = T.alloc_shared((stages, BM, D), dtype)
            q_full = T.alloc_barrier(LOADER_THREADS)
            k_full = T.alloc_barrier([LOADER_THREADS] * stages)
            v_full = T.alloc_barrier([LOADER_THREADS] * stages)
            k_free = T.alloc_barrier([workers] * stages)
            v_free = T.alloc_barrier([workers] * stages)
            last = T.ceildiv(S, BM) - 1 - block  # the diagonal block is both the last of the keys and the first step

            with T.ws(groups):
                T.dec_max_nreg(LOADER_REGISTERS)
                T.tma_copy(q[head, last * BM, 0], q_tile, barrier=q_full)
                T.mbarrier_arrive(q_full)
                for step in T.serial(last + 1):
                    n = T.if_then_else(step == 0, last, step - 1) * BM
                    T.mbarrier_wait_parity(k_free[step % stages], step // stages % 2 ^ 1)
                    T.tma_copy(k[head, n, 0], k_tile[step % stages, :, :], barrier=k_full[step % stages])
                    T.mbarrier_arrive(k_full[step % stages])
                    T.mbarrier_wait_parity(v_free[step % stages], step // stages % 2 ^ 1)
                    T.tma_copy(v[head, n, 0], v_tile[step % stages, :, :], barrier=v_full[step % stages])
                    T.mbarrier_arrive(v_full[step % stages])

            with T.ws(*range(groups)):
                T.inc_max_nreg(registers)
                scores = T.alloc_fragment((BM, BM), T.float32)
                p = T.alloc_fragment((BM, BM), dtype)
                result = T.alloc_fragment((BM, D), T.float32)
                maximum = T.alloc_fragment((BM,), T.float32)
                previous = T.alloc_fragment((BM,), T.float32)
                shrink = T.alloc_fragment((BM,), T.float32)
                part = T.alloc_fragment((BM,), T.float32)
                total = T.alloc_fragment((BM,), T.float32)

                T.clear(result)
                T.fill(shrink, 1.0)
                T.mbarrier_wait_parity(q_full, 0)
                T.mbarrier_wait_parity(k_full[0], 0)
                T.wgmma_gemm(q_tile, k_tile[0, :, :], scores, transpose_B=True, clear_accum=True, policy=FULL_ROW)
                T.wait_wgmma(0)
                T.mbarrier_arrive(k_free[0])
                # Keys beyond S lie right of the diagonal of every row that is stored, so one mask serves both.
                for i, j in T.Parallel(BM, BM):
                    scores[i, j] = T.if_then_else(i >= j, scores[i, j], -T.infinity(T.float32))
                T.reduce_max(scores, maximum, dim=1)
                for i, j in T.Parallel(BM, BM):
                    scores[i, j] = T.exp2(scores[i, j] * scale - maximum[i] * scale)
                T.reduce_sum(scores, total, dim=1)
                T.copy(scores, p)

                for before in T.serial(last):
                    step = before + 1
                    T.mbarrier_wait_parity(k_full[step % stages], step // stages % 2)
                    T.wgmma_gemm(
                        q_tile, k_tile[step % stages, :, :], scores, transpose_B=True, clear_accum=True, policy=FULL_ROW
                    )
                    for i, j in T.Parallel(BM, D):
                        result[i, j] *= shrink[i]
                    T.mbarrier_wait_parity(v_full[before % stages], before // stages % 2)
                    T.wgmma_gemm(p, v_tile[before % stages, :, :], result, policy=FULL_ROW)
                    T.wait_wgmma(1)  # the scores
                    T.mbarrier_arrive(k_free[step % stages])
                    T.copy(maximum, previous)
                    T.reduce_max(scores, maximum, dim=1, clear=False)
                    for i in T.Parallel(BM):
                        shrink[i] = T.exp2((previous[i] - maximum[i]) * scale)
                    for i, j in T.Parallel(BM, BM):
                        scores[i, j] = T.exp2(scores[i, j] * scale - maximum[i] * scale)
                    T.reduce_sum(scores, part, dim=1)
                    for i in T.Parallel(BM):
                        total[i] = total[i] * shrink[i] + part[i]
                    # This wait is over. But it is a loop, over which the assembler moves nothing: otherwise it would move
                    # the exponentials behind the wait for the product during which they are to be taken.
                    T.mbarrier_wait_parity(v_full[before % stages], before // stages % 2)
                    T.wait_wgmma(0)
                    T.mbarrier_arrive(v_free[before % stages])
                    T.copy(scores, p)
                for i, j in T.Parallel(BM, D):
                    result[i, j] *= shrink[i]
                T.mbarrier_wait_parity(v_full[last % stages], last // stages % 2)
                T.wgmma_gemm(p, v_tile[last % stages, :, :], result, policy=FULL_ROW)
                T.wait_wgmma(0)
                for i, j in T.Parallel(BM, D):
                    result[i, j] *= 1 / total[i]
                # The rows that a warp group overwrites are its own: no other multiplies by them.
                T.copy(result, q_tile)
                T.fence_proxy_async()
                T.sync_threads(1, workers)
                T.copy(q_tile, o[head, last * BM, 0])

    return attention


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, BM: int, stages: int) -> torch.Tensor:
    """Return o [B, H, S, D] of q, k, v [B, H, S, D]."""
    B, H, S, D = q.shape
    o = torch.empty_like(q)
    attention_kernel(q.dtype, D, BM, stages)(*(tensor.view(B * H, S, D) for tensor in (q, k, v, o)))
    return o


def default(case: Case) -> Config:
    return {"BM": 128, "stages": 2}


def space(case: Case) -> list[Config]:
    return [{"BM": 64, "stages": stages} for stages in (2, 3, 4)] + [{"BM": 128, "stages": stages} for stages in (1, 2)]


def unsupported(case: Case, device: Device) -> str | None:
    if device.capability < (9, 0):
        return "written for the TMA of compute capability 9.0 and newer"
    return None


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
