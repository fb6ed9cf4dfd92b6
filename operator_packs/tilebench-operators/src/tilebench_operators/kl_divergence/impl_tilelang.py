"""Kullback-Leibler divergence in TileLang: one block adds up one row, lane by lane, and reduces its lanes once."""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tilelang_rows import stream_default, stream_space, vector_width

LN2 = 0.6931471805599453  # ln x = log2 x · ln 2, and the GPU has an instruction for log2


@tilelang.jit
def divergence_kernel(BLOCK: int, VEC: int, threads: int):
    """One block, one row in chunks of BLOCK; VEC divides cols."""
    rows, cols = T.dynamic("rows"), T.dynamic("cols")

    @T.prim_func
    def divergence_row(
        log_predicted: T.Tensor((rows, cols), T.float32),
        truth: T.Tensor((rows, cols), T.float32),  # `true` is a keyword of CUDA C++
        loss: T.Tensor((rows,), T.float32),
    ):
        with T.Kernel(rows, threads=threads) as row:
            T.assume(cols % VEC == 0)  # so that every row starts at a multiple of VEC, and loads are VEC wide
            t = T.alloc_fragment((1, BLOCK), T.float32)
            predicted = T.alloc_fragment((1, BLOCK), T.float32)
            sums = T.alloc_fragment((1, BLOCK), T.float32)
            total = T.alloc_fragment((1,), T.float32)
            T.clear(sums)
            for chunk in T.serial(T.ceildiv(cols, BLOCK)):
                for i, j in T.Parallel(1, BLOCK):
                    k = chunk * BLOCK + j
                    t[i, j] = T.if_then_else(k < cols, truth[row, k], 0)
                    predicted[i, j] = T.if_then_else(k < cols, log_predicted[row, k], 0)
                for i, j in T.Parallel(1, BLOCK):
                    # Where t is 0 the logarithm is taken of 1 instead, and 0·(0 - predicted) adds nothing.
                    log_true = T.log2(T.if_then_else(t[i, j] > 0, t[i, j], 1)) * LN2
                    sums[i, j] += t[i, j] * (log_true - predicted[i, j])
            T.reduce_sum(sums, total, dim=1)
            for i in T.Parallel(1):
                loss[row + i] = total[i]

    return divergence_row


def run(log_predicted: torch.Tensor, true: torch.Tensor, *, BLOCK: int, threads: int) -> torch.Tensor:
    """Return Σ true·(ln true - log_predicted) over the last axis of two [rows, cols], [rows] fp32; 0·ln 0 is 0."""
    rows, cols = true.shape
    loss = torch.empty(rows, dtype=torch.float32, device=true.device)
    divergence_kernel(BLOCK, vector_width(cols, true.element_size()), threads)(log_predicted, true, loss)
    return loss


def default(case: Case) -> Config:
    config = stream_default(case["rows"], case["cols"], case.dtype_size)
    while config["BLOCK"] > case["cols"] and config["threads"] > 64:  # a chunk longer than the row leaves threads idle
        config = {name: value // 2 for name, value in config.items()}
    return config


def space(case: Case) -> list[Config]:
    return stream_space(case["cols"], case.dtype_size)


KERNEL = Kernel(run=run, default=default, space=space)
