"""Linear self-attention in TileLang: three launches; φ(q) and φ(k) never reach memory.

1. s = φ(k)ᵀ·v and z, the column sums of φ(k): M is split over blocks, each sums its rows apart;
2. the parts are added;
3. o = φ(q)·s / (φ(q)·z + eps), the denominator beside the product.
With one block per output tile of s, the first launch would occupy (D / 64)² multiprocessors, 16 at most.

φ is applied on the way from shared memory to the registers of the left operand; s and v have the reduction axis outermost,
which WGMMA does not take in TF32, so the products use the instructions of Ampere. D is a constant of the kernels.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Device, Kernel
from tilelang.layout import make_swizzled_layout

from tilebench_operators._tilelang_matmul import LOADER_REGISTERS, worker_registers

LOG2_E = 1.4426950408889634
PER_SM = 3  # blocks on a multiprocessor, so that one computes while another waits
LANES = 32  # columns of the parts that a block of sum_kernel adds up
GROUPS = 8  # that share the splits


def phi(x):
    return T.if_then_else(x > 0, x + 1, T.exp2(x * LOG2_E))


@tilelang.jit
def parts_kernel(D: int, TILE: int, ROWS: int, stages: int, threads: int):
    """parts [splits, D + 1, D]: s [D, D], then z [D], of one split's chunks·ROWS rows of k, v [M, D].

    One TILE × TILE tile of a state per block.
    """
    M, splits = T.dynamic("M"), T.dynamic("splits")
    aligned = D % 4 == 0  # rows that TMA can address: their pitch is a multiple of 16 bytes

    @T.prim_func
    def attention_parts(
        k: T.Tensor((M, D), T.float32),
        v: T.Tensor((M, D), T.tfloat32),
        parts: T.Tensor((splits, D + 1, D), T.float32),
        chunks: T.int32,
    ):
        with T.Kernel(splits, T.ceildiv(D, TILE), T.ceildiv(D, TILE), threads=threads) as (split, bi, bj):
            T.annotate_min_blocks_per_sm(PER_SM)
            T.annotate_producer_reg_dealloc(LOADER_REGISTERS)
            T.annotate_consumer_reg_alloc(worker_registers(threads, PER_SM))
            k_tile = T.alloc_shared((ROWS, TILE), T.float32)
            T.annotate_layout({k_tile: make_swizzled_layout(k_tile)})  # fewer of a column's elements share a bank
            v_tile = T.alloc_shared((ROWS, TILE), T.tfloat32)
            features = T.alloc_fragment((TILE, ROWS), T.float32)
            operand = T.alloc_fragment((TILE, ROWS), T.tfloat32)
            state = T.alloc_fragment((TILE, TILE), T.float32)
            total = T.alloc_fragment((TILE,), T.float32)
            part = T.alloc_fragment((TILE,), T.float32)
            T.clear(state)
            T.clear(total)
            for step in T.Pipelined(
                T.min(chunks, T.ceildiv(M, ROWS) - split * chunks), num_stages=stages if aligned else 0
            ):
                T.copy(k[(split * chunks + step) * ROWS, bi * TILE], k_tile, disable_tma=not aligned)
                T.copy(v[(split * chunks + step) * ROWS, bj * TILE], v_tile, disable_tma=not aligned)
                for i, row in T.Parallel(TILE, ROWS):
                    # φ(0) is 1: the padding must be zeroed after φ.
                    features[i, row] = T.if_then_else((split * chunks + step) * ROWS + row < M, phi(k_tile[row, i]), 0)
                T.reduce_sum(features, part, dim=1)
                for i in T.Parallel(TILE):
                    total[i] += part[i]
                T.copy(features, operand)
                T.gemm(operand, v_tile, state)
            for i, j in T.Parallel(TILE, TILE):
                if bi * TILE + i < D and bj * TILE + j < D:
                    parts[split, bi * TILE + i, bj * TILE + j] = state[i, j]
            if bj == 0:
                for i in T.Parallel(TILE):
                    if bi * TILE + i < D:
                        parts[split, D, bi * TILE + i] = total[i]

    return attention_parts


@tilelang.jit
def sum_kernel(MOST: int):
    """total[x] = Σ_split parts[split, x]; parts [splits, n], total [n], splits <= MOST."""
    splits, n = T.dynamic("splits"), T.dynamic("n")

    @T.prim_func
    def attention_sum(parts: T.Tensor((splits, n), T.float32), total: T.Tensor((n,), T.float32)):
        with T.Kernel(T.ceildiv(n, LANES), threads=LANES * GROUPS) as block:
            thread = T.get_thread_binding()
            x = block * LANES + thread % LANES
            group = thread // LANES
            shared = T.alloc_shared((GROUPS, LANES), T.float32)
            mine = T.alloc_var(T.float32, init=0.0)
            for i in T.unroll(T.ceildiv(MOST, GROUPS)):
                mine = mine + T.if_then_else(i * GROUPS + group < splits and x < n, parts[i * GROUPS + group, x], 0)
            shared[group, thread % LANES] = mine
            T.sync_threads()
            if group == 0 and x < n:
                for i in T.unroll(1, GROUPS):
                    mine = mine + shared[i, thread % LANES]
                total[x] = mine

    return attention_sum


@tilelang.jit
def output_kernel(D: int, BM: int, BN: int, BK: int, stages: int, threads: int):
    """o [M, D]; q [M, D], state [D + 1, D], of which z [D] is the last row. One BM × BN tile of o per block."""
    M = T.dynamic("M")
    aligned = D % 4 == 0
    DEPTH = T.ceildiv(D, BK) * BK

    @T.prim_func
    def attention_output(
        q: T.Tensor((M, D), T.float32),
        state: T.Tensor((D + 1, D), T.tfloat32),
        z: T.Tensor((D,), T.float32),
        o: T.Tensor((M, D), T.float32),
        eps: T.float32,
    ):
        with T.Kernel(T.ceildiv(M, BM), T.ceildiv(D, BN), threads=threads) as (bm, bn):
            T.annotate_min_blocks_per_sm(PER_SM)
            T.annotate_producer_reg_dealloc(LOADER_REGISTERS)
            T.annotate_consumer_reg_alloc(worker_registers(threads, PER_SM))
            q_tile = T.alloc_shared((BM, BK), T.float32)
            T.annotate_layout({q_tile: make_swizzled_layout(q_tile)})
            state_tile = T.alloc_shared((BK, BN), T.tfloat32)
            weights = T.alloc_shared((DEPTH,), T.float32)
            features = T.alloc_fragment((BM, BK), T.float32)
            operand = T.alloc_fragment((BM, BK), T.tfloat32)
            numerator = T.alloc_fragment((BM, BN), T.float32)
            denominator = T.alloc_fragment((BM,), T.float32)
            part = T.alloc_fragment((BM,), T.float32)
            for d in T.Parallel(DEPTH):
                weights[d] = T.if_then_else(d < D, z[d], 0)
            T.clear(numerator)
            T.fill(denominator, eps)
            for step in T.Pipelined(T.ceildiv(D, BK), num_stages=stages if aligned else 0):
                T.copy(q[bm * BM, step * BK], q_tile, disable_tma=not aligned)
                T.copy(state[step * BK, bn * BN], state_tile, disable_tma=not aligned)
                for i, d in T.Parallel(BM, BK):
                    # Beyond D, φ(0) is 1, and s is followed by z.
                    features[i, d] = T.if_then_else(step * BK + d < D, phi(q_tile[i, d]), 0)
                T.copy(features, operand)
                T.gemm(operand, state_tile, numerator)
                for i, d in T.Parallel(BM, BK):
                    features[i, d] *= weights[step * BK + d]
                T.reduce_sum(features, part, dim=1)
                for i in T.Parallel(BM):
                    denominator[i] += part[i]
            for i in T.Parallel(BM):
                denominator[i] = 1 / denominator[i]
            for i, j in T.Parallel(BM, BN):
                numerator[i, j] *= denominator[i]
            T.copy(numerator, o[bm * BM, bn * BN], disable_tma=True)

    return attention_output


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, eps: float, *, TILE: int, ROWS: int, SPLITS: int,
    BM: int, BN: int, stages: int, threads: int,
) -> torch.Tensor:  # fmt: skip
    """Return o [M, D] of q, k, v [M, D]. At most SPLITS blocks share the rows of one tile of s."""
    M, D = q.shape
    chunks = -(-M // (SPLITS * ROWS))  # of ROWS rows, in one split
    splits = -(-M // (chunks * ROWS))  # so that none is empty
    parts = torch.empty([splits, D + 1, D], dtype=torch.float32, device=q.device)
    state = torch.empty([D + 1, D], dtype=torch.float32, device=q.device)
    o = torch.empty_like(q)
    parts_kernel(D, TILE, ROWS, stages, threads)(k, v, parts, chunks)
    sum_kernel(SPLITS)(parts.view(splits, -1), state.view(-1))
    output_kernel(D, BM, BN, 32, stages, threads)(q, state, state[D], o, eps)
    return o


def _power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()


def _config(case: Case, TILE: int, ROWS: int, blocks: int, BM: int, BN: int, stages: int) -> Config:
    """SPLITS gives about `blocks` blocks, each with at least ROWS rows."""
    wanted = _power(-(-blocks // (-(-case["D"] // TILE)) ** 2))
    splits = max(1, min(128, wanted, _power(-(-case["M"] // ROWS))))
    return {"TILE": TILE, "ROWS": ROWS, "SPLITS": splits, "BM": BM, "BN": BN, "stages": stages, "threads": 128}


def default(case: Case) -> Config:
    width = min(64, max(32, _power(case["D"])))
    return _config(case, width, 32, 256, 64, width, 3)


def space(case: Case) -> list[Config]:
    widest = min(64, max(32, _power(case["D"])))
    return [
        _config(case, tile, rows, blocks, bm, widest, stages)
        for tile in sorted({min(32, widest), widest})
        for rows in (32, 64)
        for blocks in (128, 256)
        for bm in (32, 64)
        for stages in (2, 3)
    ]


def unsupported(case: Case, device: Device) -> str | None:
    if device.capability < (9, 0):
        return "TileLang 0.1.15 pipelines a loop of unknown length only where there is TMA (compute capability 9.0)"
    return None


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
