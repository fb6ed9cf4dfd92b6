"""Linear self-attention in cuTile: three launches; φ(q) and φ(k) never reach memory.

1. s = φ(k)ᵀ·v and z, the column sums of φ(k): M is split over blocks, each sums its rows apart;
2. the parts are added;
3. o = φ(q)·s / (φ(q)·z + eps), the denominator beside the product.
With one block per output tile of s, the first launch would occupy (D / 64)² multiprocessors, 16 at most.
"""

import functools
import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

LOG2_E = math.log2(math.e)
ZERO = ct.PaddingMode.ZERO


def phi(x):
    return ct.where(x > 0, x + 1.0, ct.exp2(x * LOG2_E))


@ct.kernel
def parts_kernel(k, v, states, sums, chunks_per_split, TILE: ct.Constant[int], ROWS: ct.Constant[int]):
    """states [splits, D, D] and sums [splits, D] of one split's chunks_per_split·ROWS rows of k, v [M, D].

    One TILE × TILE tile of a state per block.
    """
    split, i, j = ct.bid(0), ct.bid(1), ct.bid(2)
    chunks = ct.cdiv(k.shape[0], ROWS)
    state = ct.zeros((TILE, TILE), ct.float32)
    total = ct.zeros((ROWS, TILE), ct.float32)  # summed over the rows once, at the end
    for chunk in range(split * chunks_per_split, ct.minimum(chunks, (split + 1) * chunks_per_split)):
        # φ(0) is 1, so rows beyond M must be zeroed after φ. Padding with -inf would do it before, but TMA, which this load
        # becomes, pads with zeros whatever is asked for (seen with cuda-tile 1.7 on an H200).
        rows = chunk * ROWS + ct.arange(ROWS, dtype=ct.int32)
        features = phi(ct.load(k, (chunk, i), (ROWS, TILE), padding_mode=ZERO))
        features = ct.where(rows[:, None] < k.shape[0], features, 0.0)
        value = ct.load(v, (chunk, j), (ROWS, TILE), padding_mode=ZERO)
        total += features
        state = ct.mma(ct.transpose(features).astype(ct.tfloat32), value.astype(ct.tfloat32), state)
    ct.store(states, (split, i, j), state.reshape((1, TILE, TILE)))
    if j == 0:
        ct.store(sums, (split, i), ct.sum(total, 0, keepdims=True))


@ct.kernel
def sum_kernel(parts, total, SPLITS: ct.Constant[int], BLOCK: ct.Constant[int]):
    """total[x] = Σ_split parts[split, x]; parts [SPLITS, n], total [n]."""
    tile = ct.load(parts, (0, ct.bid(0)), (SPLITS, BLOCK), padding_mode=ZERO, allow_tma=False)
    ct.store(total, (ct.bid(0),), ct.sum(tile, 0), allow_tma=False)


@ct.kernel
def output_kernel(q, state, z, o, eps, BM: ct.Constant[int], BN: ct.Constant[int], BK: ct.Constant[int]):
    """o [M, D]; q [M, D], state [D, D], z [D]. One BM × BN tile of o per block."""
    m, j = ct.bid(0), ct.bid(1)
    numerator = ct.zeros((BM, BN), ct.float32)
    products = ct.zeros((BM, BK), ct.float32)  # φ(q)·z, summed over d once, at the end
    for d in range(ct.cdiv(q.shape[1], BK)):
        # Padding needs no care here: s and z load as zeros beyond D.
        features = phi(ct.load(q, (m, d), (BM, BK), padding_mode=ZERO))
        tile = ct.load(state, (d, j), (BK, BN), padding_mode=ZERO)
        numerator = ct.mma(features.astype(ct.tfloat32), tile.astype(ct.tfloat32), numerator)
        weights = ct.load(z, (d,), (BK,), padding_mode=ZERO, allow_tma=False)
        products += features * weights[None, :]
    ct.store(o, (m, j), numerator * (1.0 / (ct.sum(products, 1, keepdims=True) + eps)))


@functools.cache
def hinted(kernel: ct.kernel, occupancy: int) -> ct.kernel:
    """`kernel` for `occupancy` blocks on a multiprocessor. A hinted kernel has compiled code of its own."""
    return kernel.replace_hints(occupancy=occupancy)


def _power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, eps: float, *, TILE: int, ROWS: int, SPLITS: int,
    BM: int, BN: int, OCCUPANCY: int,
) -> torch.Tensor:  # fmt: skip
    """Return o [M, D] of q, k, v [M, D]. At most SPLITS blocks share the rows of one tile of s."""
    M, D = q.shape
    stream = torch.cuda.current_stream()
    chunks = ct.cdiv(ct.cdiv(M, SPLITS), ROWS)  # of ROWS rows, in one split
    splits = ct.cdiv(M, chunks * ROWS)  # so that none is empty
    tiles = ct.cdiv(D, TILE)
    n = D * D + D  # s [D, D], then z [D]
    parts = torch.empty([splits, n], dtype=torch.float32, device=q.device)
    total = torch.empty([n], dtype=torch.float32, device=q.device)
    o = torch.empty_like(q)
    arguments = (k, v, parts[:, : D * D].view(splits, D, D), parts[:, D * D :], chunks, TILE, ROWS)
    ct.launch(stream, (splits, tiles, tiles), hinted(parts_kernel, OCCUPANCY), arguments)
    lanes = _power(splits)
    BLOCK = max(16, 4096 // lanes)  # 32 numbers per thread
    ct.launch(stream, (ct.cdiv(n, BLOCK),), sum_kernel, (parts, total, lanes, BLOCK))
    grid = (ct.cdiv(M, BM), ct.cdiv(D, BN))
    state, z = total[: D * D].view(D, D), total[D * D :]
    ct.launch(stream, grid, hinted(output_kernel, OCCUPANCY), (q, state, z, o, eps, BM, BN, 32))
    return o


def _config(case: Case, TILE: int, ROWS: int, blocks: int, BM: int, BN: int, occupancy: int) -> Config:
    """SPLITS gives about `blocks` blocks, each with at least ROWS rows."""
    wanted = _power(-(-blocks // (-(-case["D"] // TILE)) ** 2))
    splits = max(1, min(128, wanted, _power(-(-case["M"] // ROWS))))
    return {"TILE": TILE, "ROWS": ROWS, "SPLITS": splits, "BM": BM, "BN": BN, "OCCUPANCY": occupancy}


def default(case: Case) -> Config:
    width = min(64, max(16, _power(case["D"])))
    # Four blocks per multiprocessor for wide heads: with one, each walks over its rows for longer than all else takes.
    return _config(case, width, 32, 512 if case["D"] >= 128 else 128, 64, width, 2)


def space(case: Case) -> list[Config]:
    widest = min(64, max(16, _power(case["D"])))
    return [
        _config(case, tile, rows, blocks, bm, widest, occupancy)
        for tile in sorted({min(32, widest), widest})
        for rows in (32, 64)
        for blocks in (128, 512)
        for bm in (32, 64)
        for occupancy in (1, 2)
    ]


KERNEL = Kernel(run=run, default=default, space=space)
