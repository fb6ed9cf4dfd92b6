"""Kullback-Leibler divergence in TileLang: one block adds up one row, lane by lane, and reduces its lanes once."""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tilelang_once import PRELUDE, load_once
from tilebench_operators._tilelang_rows import stream_default, stream_space, vector_width

LN2 = 0.6931471805599453  # ln x = log2 x · ln 2, and the GPU has an instruction for log2


@tilelang.jit
def divergence_kernel(LOADS: int, VEC: int, threads: int):
    """One block, one row in chunks of LOADS · threads · VEC columns; VEC divides cols. Zeros beyond the end add nothing."""
    rows, cols = T.dynamic("rows"), T.dynamic("cols")
    CHUNK = LOADS * threads * VEC

    @T.prim_func
    def divergence_row(
        log_predicted: T.Tensor((rows, cols), T.float32),
        truth: T.Tensor((rows, cols), T.float32),  # `true` is a keyword of CUDA C++
        loss: T.Tensor((rows,), T.float32),
    ):
        with T.Kernel(rows, threads=threads, prelude=PRELUDE) as row:
            T.assume(cols % VEC == 0)  # so that every row starts at a multiple of VEC, and loads are VEC wide
            t = T.alloc_local((LOADS * VEC,), T.float32)
            predicted = T.alloc_local((LOADS * VEC,), T.float32)
            sums = T.alloc_local((VEC,), T.float32)
            total = T.alloc_local((1,), T.float32)
            partial = T.alloc_shared((threads // 32,), T.float32)
            tid = T.get_thread_binding()
            for v in T.unroll(VEC):
                sums[v] = 0
            for chunk in T.serial(T.ceildiv(cols, CHUNK)):
                # All loads stand before the first logarithm, so that they are in flight together.
                for u in T.unroll(LOADS):
                    k = chunk * CHUNK + (u * threads + tid) * VEC
                    if k < cols:
                        load_once(t[u * VEC], truth[row, k], VEC * 4)
                        load_once(predicted[u * VEC], log_predicted[row, k], VEC * 4)
                    else:
                        for v in T.vectorized(VEC):
                            t[u * VEC + v] = 0
                        for v in T.vectorized(VEC):
                            predicted[u * VEC + v] = 0
                for u in T.unroll(LOADS):
                    for v in T.unroll(VEC):
                        # Where t is 0 the logarithm is taken of 1 instead, and 0·(0 - predicted) adds nothing.
                        log_true = T.log2(T.if_then_else(t[u * VEC + v] > 0, t[u * VEC + v], 1)) * LN2
                        sums[v] += t[u * VEC + v] * (log_true - predicted[u * VEC + v])
            total[0] = 0
            for v in T.unroll(VEC):
                total[0] += sums[v]
            total[0] = T.warp_reduce_sum(total[0])
            if tid % 32 == 0:
                partial[tid // 32] = total[0]
            T.sync_threads()
            if tid == 0:
                total[0] = 0
                for w in T.unroll(threads // 32):
                    total[0] += partial[w]
                loss[row] = total[0]

    return divergence_row


def run(log_predicted: torch.Tensor, true: torch.Tensor, *, BLOCK: int, threads: int) -> torch.Tensor:
    """Return Σ true·(ln true - log_predicted) over the last axis of two [rows, cols], [rows] fp32; 0·ln 0 is 0."""
    rows, cols = true.shape
    loss = torch.empty(rows, dtype=torch.float32, device=true.device)
    width = vector_width(cols, true.element_size())
    divergence_kernel(BLOCK // (threads * width), width, threads)(log_predicted, true, loss)
    return loss


def default(case: Case) -> Config:
    config = stream_default(case["rows"], case["cols"], case.dtype_size)
    while config["BLOCK"] > case["cols"] and config["threads"] > 64:  # a chunk longer than the row leaves threads idle
        config = {name: value // 2 for name, value in config.items()}
    return config


def space(case: Case) -> list[Config]:
    return stream_space(case["cols"], case.dtype_size)


KERNEL = Kernel(run=run, default=default, space=space)
