"""Linear self-attention in Triton: three launches; φ(q) and φ(k) never reach memory.

1. sᵀ = vᵀ·φ(k) and z, the column sums of φ(k): M is split over programs, each sums its rows apart;
2. the parts are added;
3. o = φ(q)·s / (φ(q)·z + eps), the denominator beside the product.

All three are a few microseconds long and mostly latency, so each starts while the one before it still runs: the third has
q in its registers or in the L2 cache when s is ready.

Hopper's tensor cores take TF32 operands from shared memory only with the reduction axis innermost. So s is stored transposed,
as the third launch wants it. In the first launch that axis is outermost in both operands, which 16-bit types may have:
a number is split into two bfloat16, high + low, 16 bits of mantissa where TF32 has 11, and three products of halves
take 1.5 times as long as one in TF32 but need no transposition.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel
from triton.tools.tensor_descriptor import TensorDescriptor

from tilebench_operators._triton_dependent import dependent, prefetch, start_next, wait_for_previous
from tilebench_operators._triton_wgmma import ended

LOG2_E = tl.constexpr(1.4426950408889634)
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def phi(x):
    return tl.where(x > 0, x + 1.0, tl.exp2(x * LOG2_E))


@triton.jit
def halves(x):
    """Return bfloat16 numbers high and low with x ≈ high + low. High is cut off, not rounded: one instruction."""
    high = (x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
    low = x - high
    if INTERPRETED:  # Triton's interpreter can't multiply bf16 matrices
        return high, low
    else:
        return high.to(tl.bfloat16), low.to(tl.bfloat16)


@triton.jit
def load_tile(source, row, column, rows, columns, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, TMA: tl.constexpr):
    """A tile [HEIGHT, WIDTH] of a matrix [rows, columns], zero beyond its end: by TMA, of a descriptor, or of a pointer."""
    if TMA:
        return source.load([row, column])
    else:
        i, j = row + tl.arange(0, HEIGHT)[:, None], column + tl.arange(0, WIDTH)[None, :]
        return tl.load(source + i * columns + j, mask=(i < rows) & (j < columns), other=0.0)


@triton.jit
def parts_kernel(
    k, v, parts_ptr, M, D, rows_per_part, TI: tl.constexpr, TJ: tl.constexpr, ROWS: tl.constexpr, TMA: tl.constexpr
):
    """parts [splits, D·D + D]: sᵀ [D, D], then z [D], of one split's rows of k, v [M, D]; a tile [TJ, TI] per program."""
    start_next()
    split = tl.program_id(2)
    i0, j0 = tl.program_id(1) * TI, tl.program_id(0) * TJ
    state = tl.zeros([TJ, TI], tl.float32)
    total = tl.zeros([ROWS, TI], tl.float32)  # summed over the rows once, at the end
    for start in range(split * rows_per_part, tl.minimum(M, (split + 1) * rows_per_part), ROWS):
        features = phi(load_tile(k, start, i0, M, D, ROWS, TI, TMA))
        features = tl.where(
            start + tl.arange(0, ROWS)[:, None] < M, features, 0.0
        )  # φ(0) is 1: padding is zeroed after φ
        total += features
        k_high, k_low = halves(features)
        v_high, v_low = halves(load_tile(v, start, j0, M, D, ROWS, TJ, TMA))
        state = tl.dot(tl.trans(v_high), k_low, state)
        state = tl.dot(tl.trans(v_low), k_high, state)
        state = tl.dot(tl.trans(v_high), k_high, state)
    i, j = i0 + tl.arange(0, TI), j0 + tl.arange(0, TJ)
    parts_ptr += split * (D * D + D)
    tl.store(parts_ptr + j[:, None] * D + i, state, mask=(j[:, None] < D) & (i < D))
    if j0 == 0:
        tl.store(parts_ptr + D * D + i, tl.sum(total, axis=0), mask=i < D)


@triton.jit
def sum_kernel(parts_ptr, state_ptr, splits, n, MOST: tl.constexpr, BLOCK: tl.constexpr):
    """state[x] = Σ_split parts[split, x]; parts [splits, n], state [n], n = D·D + D; splits <= MOST."""
    start_next()
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wait_for_previous()
    split = tl.arange(0, MOST)[:, None]
    parts = tl.load(parts_ptr + split * n + x, mask=(split < splits) & (x < n), other=0.0)
    tl.store(state_ptr + x, tl.sum(parts, axis=0), mask=x < n)


@triton.jit
def output_kernel(
    q, q_ptr, state, z_ptr, o_ptr, M, D, eps,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WHOLE: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """o [M, D]; q [M, D], state [D, D] is sᵀ, z [D]. One BM × BN tile of o per program. WHOLE: BK >= D."""
    # The tiles of the same rows of q side by side, so that q comes from memory once.
    m0, j0 = tl.program_id(1) * BM, tl.program_id(0) * BN
    m = m0 + tl.arange(0, BM)[:, None]
    numerator = tl.zeros([BM, BN], tl.float32)
    # Padding of φ(q) needs no care: s and z are zero beyond D.
    if WHOLE:
        features = phi(load_tile(q, m0, 0, M, D, BM, BK, TMA))
        wait_for_previous()
        d = tl.arange(0, BK)
        tile = load_tile(state, j0, 0, D, D, BN, BK, TMA)
        products = features * tl.load(z_ptr + d, mask=d < D, other=0.0)
        numerator = tl.dot(features, tl.trans(tile), numerator, input_precision="tf32")
    else:
        products = tl.zeros([BM, BK], tl.float32)  # φ(q)·z, summed over d once, at the end
        for start in range(0, D, 128):  # one cache line of four chunks for each row
            line = start + tl.arange(0, 4)[None, :] * BK
            prefetch(q_ptr + m * D + line, (m < M) & (line < D))
        wait_for_previous()
        for start in range(0, D, BK):
            d = start + tl.arange(0, BK)
            features = phi(load_tile(q, m0, start, M, D, BM, BK, TMA))
            tile = load_tile(state, j0, start, D, D, BN, BK, TMA)
            numerator = tl.dot(features, tl.trans(tile), numerator, input_precision="tf32")
            products += features * tl.load(z_ptr + d, mask=d < D, other=0.0)
            numerator = ended(numerator)
    o = numerator * (1.0 / (tl.sum(products, axis=1) + eps))[:, None]
    j = j0 + tl.arange(0, BN)
    tl.store(o_ptr + m * D + j, o, mask=(m < M) & (j < D))


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, eps: float, *, TI: int, TJ: int, ROWS: int, SPLITS: int,
    BM: int, BN: int, num_warps: int, num_stages: int,
) -> torch.Tensor:  # fmt: skip
    """Return o [M, D] of q, k, v [M, D]. At most SPLITS programs share the rows of one tile of s."""
    M, D = q.shape
    n = D * D + D
    rows_per_part = triton.cdiv(triton.cdiv(M, SPLITS), ROWS) * ROWS
    splits = triton.cdiv(M, rows_per_part)  # so that none is empty
    parts = torch.empty([splits, n], dtype=torch.float32, device=q.device)
    total = torch.empty([n], dtype=torch.float32, device=q.device)
    state, z = total[: D * D].view(D, D), total[D * D :]
    o = torch.empty_like(q)
    # TMA wants a pitch, and a start, of a multiple of 16 bytes.
    tma = D % 4 == 0 and all(matrix.data_ptr() % 16 == 0 for matrix in (q, k, v))

    def source(matrix: torch.Tensor, height: int, width: int) -> TensorDescriptor | torch.Tensor:
        return TensorDescriptor.from_tensor(matrix, [height, width]) if tma else matrix

    options = {"TMA": tma, "num_warps": num_warps, "num_stages": num_stages}
    grid = (triton.cdiv(D, TJ), triton.cdiv(D, TI), splits)
    parts_kernel[grid](
        source(k, ROWS, TI), source(v, ROWS, TJ), parts, M, D, rows_per_part, TI=TI, TJ=TJ, ROWS=ROWS, **options
    )
    most = triton.next_power_of_2(splits)
    BLOCK = 4096 // most  # 32 numbers per thread
    sum_kernel[(triton.cdiv(n, BLOCK),)](parts, total, splits, n, MOST=most, BLOCK=BLOCK, num_warps=4, **dependent())
    whole = D <= 64  # a tile of q that 128 threads keep in registers
    BK = max(32, triton.next_power_of_2(D)) if whole else 32  # 128 bytes, the width of TMA's swizzle
    output_kernel[(triton.cdiv(D, BN), triton.cdiv(M, BM))](
        source(q, BM, BK), q, source(state, BN, BK), z, o, M, D, eps,
        BM=BM, BN=BN, BK=BK, WHOLE=whole, **options, **dependent(),
    )  # fmt: skip
    return o


def _config(
    case: Case, TI: int, TJ: int, ROWS: int, programs: int, BM: int, BN: int, warps: int, stages: int
) -> Config:
    """SPLITS gives about `programs` programs in the first launch, each with at least two chunks of ROWS rows."""
    tiles = triton.cdiv(case["D"], TI) * triton.cdiv(case["D"], TJ)
    splits = max(1, min(128, programs // tiles, triton.cdiv(case["M"], 2 * ROWS)))
    return {
        "TI": TI, "TJ": TJ, "ROWS": ROWS, "SPLITS": splits, "BM": BM, "BN": BN,
        "num_warps": warps, "num_stages": stages,
    }  # fmt: skip


def default(case: Case) -> Config:
    M, D = case["M"], case["D"]
    TI = min(64, max(16, triton.next_power_of_2(D)))
    # The widest tile of o, up to 128 columns, with which 132 multiprocessors have a program each. Of a head of 64 columns, whose
    # programs are short, two share the rows.
    BN = 128 if D > 128 else min(TI, 32) if D <= 64 else TI
    while BN > 32 and triton.cdiv(M, 64) * triton.cdiv(D, BN) < 120:
        BN //= 2
    # Two programs for each of 132 multiprocessors: one multiplies while the other computes φ and splits numbers. Their number
    # decides what the second launch reads, so narrow heads, whose tiles of s hold little work, have one. Wide heads have so many
    # tiles of s that few parts do, of which each has rows for longer products.
    return _config(case, TI, 64, 64 if D > 128 else 32, 264 if D >= 64 else 132, 64, BN, 4, 3)


def space(case: Case) -> list[Config]:
    widest = min(128, max(16, triton.next_power_of_2(case["D"])))
    narrow = min(64, widest)
    tiles = {(narrow, 64, 4), (narrow, max(64, widest), 4), (widest, max(64, widest), 8)}
    configs = [default(case)] + [
        _config(case, ti, tj, rows, programs, bm, bn, warps, 3)
        for ti, tj, warps in sorted(tiles)
        for rows in (32, 64)
        for programs in (132, 264)
        for bm, bn in sorted({(64, min(32, narrow)), (64, narrow), (64, widest)})
    ]
    return [config for n, config in enumerate(configs) if config not in configs[:n]]


KERNEL = Kernel(run=run, default=default, space=space)
