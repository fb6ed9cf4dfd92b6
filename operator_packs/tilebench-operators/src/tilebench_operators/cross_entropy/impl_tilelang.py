"""Cross entropy in TileLang: a block takes several rows; the logits are read once, and kept on chip where they fit.

The target's logit is loaded by itself: searching for it in the tile would cost as many instructions as adding the tile up,
and its two loads in a row, the second of what is on its way anyhow, are as fast as the row's load and maximum.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._tilelang_rows import row_default, row_layout, row_space, vector_width

LOG2E = 1.4426950408889634  # exp(x) = 2^(x·log2 e), and the GPU has an instruction for 2^x


@tilelang.jit
def rows_kernel(dtype: torch.dtype, ROWS: int, BLOCK: int, VEC: int, threads: int):
    """One block, ROWS rows: BLOCK >= C, and VEC divides C.

    Beyond a row's end is -inf, whose exp is 0. Rows beyond B are all -inf and become NaN, which is not stored.
    """
    B, C = T.dynamic("B"), T.dynamic("C")
    layout = T.Fragment((ROWS, BLOCK), forward_fn=row_layout(ROWS, VEC, threads))

    @T.prim_func
    def cross_entropy_rows(
        logits: T.Tensor((B, C), dtype), targets: T.Tensor((B,), T.int64), loss: T.Tensor((B,), dtype)
    ):
        with T.Kernel(T.ceildiv(B, ROWS), threads=threads) as block:
            T.assume(C % VEC == 0)  # so that every row starts at a multiple of VEC, and loads are VEC wide
            z = T.alloc_fragment((ROWS, BLOCK), T.float32)
            target = T.alloc_fragment((ROWS,), T.int32)
            maximum = T.alloc_fragment((ROWS,), T.float32)
            scaled = T.alloc_fragment((ROWS,), T.float32)
            total = T.alloc_fragment((ROWS,), T.float32)
            picked = T.alloc_fragment((ROWS,), T.float32)
            T.annotate_layout({z: layout})
            for i in T.Parallel(ROWS):
                target[i] = T.if_then_else(block * ROWS + i < B, T.cast(targets[block * ROWS + i], T.int32), 0)
            for i, j in T.Parallel(ROWS, BLOCK):
                inside = block * ROWS + i < B and j < C
                z[i, j] = T.if_then_else(inside, T.cast(logits[block * ROWS + i, j], T.float32), -T.infinity(T.float32))
            for i in T.Parallel(ROWS):
                inside = block * ROWS + i < B
                picked[i] = T.if_then_else(inside, T.cast(logits[block * ROWS + i, target[i]], T.float32), 0)
            T.reduce_max(z, maximum, dim=1)
            for i in T.Parallel(ROWS):
                scaled[i] = maximum[i] * LOG2E
            for i, j in T.Parallel(ROWS, BLOCK):
                z[i, j] = T.exp2(z[i, j] * LOG2E - scaled[i])
            T.reduce_sum(z, total, dim=1)
            for i in T.Parallel(ROWS):
                if block * ROWS + i < B:
                    loss[block * ROWS + i] = T.cast(maximum[i] + T.log(total[i]) - picked[i], dtype)

    return cross_entropy_rows


@tilelang.jit
def long_row_kernel(dtype: torch.dtype, BLOCK: int, VEC: int, threads: int):
    """One block, one row in chunks of BLOCK, with a running maximum and sum per lane."""
    B, C = T.dynamic("B"), T.dynamic("C")

    @T.prim_func
    def cross_entropy_long_row(
        logits: T.Tensor((B, C), dtype), targets: T.Tensor((B,), T.int64), loss: T.Tensor((B,), dtype)
    ):
        with T.Kernel(B, threads=threads) as row:
            T.assume(C % VEC == 0)
            z = T.alloc_fragment((1, BLOCK), T.float32)
            maxima = T.alloc_fragment((1, BLOCK), T.float32)
            sums = T.alloc_fragment((1, BLOCK), T.float32)
            picks = T.alloc_fragment((1, BLOCK), T.float32)
            target = T.alloc_fragment((1,), T.int32)
            maximum = T.alloc_fragment((1,), T.float32)
            total = T.alloc_fragment((1,), T.float32)
            picked = T.alloc_fragment((1,), T.float32)
            for i in T.Parallel(1):
                target[i] = T.cast(targets[row + i], T.int32)
            # Finite, so that a lane that has seen no column yet does not compute -inf - -inf.
            T.fill(maxima, T.min_value(T.float32))
            T.clear(sums)
            T.clear(picks)
            for chunk in T.serial(T.ceildiv(C, BLOCK)):
                for i, j in T.Parallel(1, BLOCK):
                    k = chunk * BLOCK + j
                    z[i, j] = T.if_then_else(k < C, T.cast(logits[row, k], T.float32), -T.infinity(T.float32))
                for i, j in T.Parallel(1, BLOCK):
                    larger = T.max(maxima[i, j], z[i, j])
                    scale = T.exp2((maxima[i, j] - larger) * LOG2E)
                    sums[i, j] = sums[i, j] * scale + T.exp2((z[i, j] - larger) * LOG2E)
                    maxima[i, j] = larger
                for i, j in T.Parallel(1, BLOCK):
                    picks[i, j] += T.if_then_else(chunk * BLOCK + j == target[i], z[i, j], 0)
            T.reduce_max(maxima, maximum, dim=1)
            for i, j in T.Parallel(1, BLOCK):
                sums[i, j] = sums[i, j] * T.exp2((maxima[i, j] - maximum[i]) * LOG2E)
            T.reduce_sum(sums, total, dim=1)
            T.reduce_sum(picks, picked, dim=1)
            for i in T.Parallel(1):
                loss[row + i] = T.cast(maximum[i] + T.log(total[i]) - picked[i], dtype)

    return cross_entropy_long_row


def run(logits: torch.Tensor, targets: torch.Tensor, *, ROWS: int, BLOCK: int, threads: int) -> torch.Tensor:
    """Return the cross entropy [B] of logits [B, C] with targets [B] int64, in the logits' dtype."""
    B, C = logits.shape
    loss = torch.empty(B, dtype=logits.dtype, device=logits.device)
    vec = vector_width(C, logits.element_size())
    if C <= BLOCK:
        rows_kernel(logits.dtype, ROWS, BLOCK, vec, threads)(logits, targets, loss)
    else:
        long_row_kernel(logits.dtype, BLOCK, vec, threads)(logits, targets, loss)
    return loss


def default(case: Case) -> Config:
    return row_default(case["B"], case["C"], case.dtype_size)


def space(case: Case) -> list[Config]:
    return row_space(case["B"], case["C"], case.dtype_size)


KERNEL = Kernel(run=run, default=default, space=space)
