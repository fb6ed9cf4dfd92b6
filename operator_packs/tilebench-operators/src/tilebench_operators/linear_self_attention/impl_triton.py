"""Linear self-attention in Triton: three launches; φ(q) and φ(k) never reach memory.

1. s = φ(k)ᵀ·v and z, the column sums of φ(k): M is split over programs, each sums its rows apart;
2. the parts are added;
3. o = φ(q)·s / (φ(q)·z + eps), the denominator beside the product.
With one program per output tile of s, the first launch would occupy (D / 64)² multiprocessors, 16 at most.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel


@triton.jit
def phi(x):
    return tl.where(x > 0, x + 1.0, tl.exp(x))


@triton.jit
def parts_kernel(k_ptr, v_ptr, parts_ptr, M, D, rows_per_part, TILE: tl.constexpr, ROWS: tl.constexpr):
    """parts [splits, D·D + D]: s [D, D], then z [D], of one split's rows; one TILE × TILE tile of s per program."""
    split = tl.program_id(0)
    i = tl.program_id(1) * TILE + tl.arange(0, TILE)
    j = tl.program_id(2) * TILE + tl.arange(0, TILE)
    state = tl.zeros([TILE, TILE], tl.float32)
    sums = tl.zeros([TILE], tl.float32)
    end = tl.minimum(M, (split + 1) * rows_per_part)
    for start in range(split * rows_per_part, end, ROWS):
        m = start + tl.arange(0, ROWS)
        k_mask = (m[None, :] < end) & (i[:, None] < D)
        v_mask = (m[:, None] < end) & (j[None, :] < D)
        k = tl.load(k_ptr + m[None, :] * D + i[:, None], mask=k_mask, other=0.0)
        v = tl.load(v_ptr + m[:, None] * D + j[None, :], mask=v_mask, other=0.0)
        features = tl.where(k_mask, phi(k), 0.0)  # φ(0) is 1: the padding must be zeroed after φ
        state = tl.dot(features, v, state, input_precision="tf32")
        sums += tl.sum(features, axis=1)
    parts_ptr += split * (D * D + D)
    tl.store(parts_ptr + i[:, None] * D + j[None, :], state, mask=(i[:, None] < D) & (j[None, :] < D))
    if tl.program_id(2) == 0:
        tl.store(parts_ptr + D * D + i, sums, mask=i < D)


@triton.jit
def sum_kernel(parts_ptr, state_ptr, n, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    """state[x] = Σ_split parts[split, x]; parts [SPLITS, n], state [n], n = D·D + D."""
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    splits = tl.arange(0, SPLITS)
    parts = tl.load(parts_ptr + splits[:, None] * n + x[None, :], mask=x[None, :] < n, other=0.0)
    tl.store(state_ptr + x, tl.sum(parts, axis=0), mask=x < n)


@triton.jit
def output_kernel(q_ptr, state_ptr, o_ptr, M, D, eps, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """o [M, D]; q [M, D], state [D·D + D]. One BM × BN tile of o per program."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    numerator = tl.zeros([BM, BN], tl.float32)
    denominator = tl.zeros([BM], tl.float32)
    for start in range(0, D, BK):
        d = start + tl.arange(0, BK)
        # Padding needs no care here: s and z are zero beyond D.
        q = tl.load(q_ptr + m[:, None] * D + d[None, :], mask=(m[:, None] < M) & (d[None, :] < D), other=0.0)
        state = tl.load(state_ptr + d[:, None] * D + j[None, :], mask=(d[:, None] < D) & (j[None, :] < D), other=0.0)
        z = tl.load(state_ptr + D * D + d, mask=d < D, other=0.0)
        features = phi(q)
        numerator = tl.dot(features, state, numerator, input_precision="tf32")
        denominator += tl.sum(features * z[None, :], axis=1)
    o = numerator / (denominator + eps)[:, None]
    tl.store(o_ptr + m[:, None] * D + j[None, :], o, mask=(m[:, None] < M) & (j[None, :] < D))


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, eps: float, *, TILE: int, ROWS: int, SPLITS: int,
    BM: int, BN: int, num_warps: int, num_stages: int,
) -> torch.Tensor:  # fmt: skip
    """Return o [M, D] of q, k, v [M, D]."""
    M, D = q.shape
    n = D * D + D
    parts = torch.empty([SPLITS, n], dtype=torch.float32, device=q.device)
    state = torch.empty([n], dtype=torch.float32, device=q.device)
    o = torch.empty_like(q)
    options = {"num_warps": num_warps, "num_stages": num_stages}
    rows_per_part = triton.cdiv(triton.cdiv(M, SPLITS), 16) * 16
    tiles = triton.cdiv(D, TILE)
    parts_kernel[(SPLITS, tiles, tiles)](k, v, parts, M, D, rows_per_part, TILE=TILE, ROWS=ROWS, **options)
    BLOCK = 4096 // SPLITS  # 32 numbers per thread
    sum_kernel[(triton.cdiv(n, BLOCK),)](parts, state, n, SPLITS=SPLITS, BLOCK=BLOCK, num_warps=4)
    output_kernel[(triton.cdiv(M, BM), triton.cdiv(D, BN))](q, state, o, M, D, eps, BM=BM, BN=BN, BK=32, **options)
    return o


def _splits(case: Case, TILE: int, programs: int) -> int:
    """A power of two that gives about `programs` programs, each with at least 32 rows."""
    tiles = triton.cdiv(case["D"], TILE) ** 2
    wanted = triton.next_power_of_2(triton.cdiv(programs, tiles))
    return max(1, min(128, wanted, triton.next_power_of_2(triton.cdiv(case["M"], 32))))


def _config(case: Case, TILE: int, ROWS: int, programs: int, BM: int, BN: int, warps: int, stages: int) -> Config:
    return {
        "TILE": TILE, "ROWS": ROWS, "SPLITS": _splits(case, TILE, programs), "BM": BM, "BN": BN,
        "num_warps": warps, "num_stages": stages,
    }  # fmt: skip


def default(case: Case) -> Config:
    width = min(64, max(16, triton.next_power_of_2(case["D"])))
    small = case["M"] * case["D"] < 1 << 20
    # Four programs per multiprocessor for wide heads: with one, each walks over its rows for longer than all else takes.
    return _config(case, width, 32, 512 if case["D"] >= 128 else 128, 32 if small else 64, width, 4, 3)


def space(case: Case) -> list[Config]:
    widest = min(128, max(16, triton.next_power_of_2(case["D"])))
    return (
        [default(case)]
        + [
            _config(case, tile, rows, programs, bm, bn, 4, stages)
            for tile in sorted({min(32, widest), min(64, widest)})
            for rows in (32, 64)
            for programs in (128, 512)
            for bm, bn in ((32, min(64, widest)), (64, min(64, widest)), (64, widest))
            for stages in (2,)
        ]
        + [_config(case, min(64, widest), 32, programs, 64, min(64, widest), 8, 3) for programs in (128, 512)]
    )


KERNEL = Kernel(run=run, default=default, space=space)
