"""Linear self-attention in cuTile: three launches; φ(q) and φ(k) never reach memory.

1. s = φ(k)ᵀ·v and z, the column sums of φ(k): M is split over blocks, each sums its rows apart;
2. the parts are added, and s is transposed, since Hopper's tensor cores take a TF32 operand from shared memory only with
   the reduction axis innermost: else the third launch would turn every tile of s in every block;
3. o = φ(q)·s / (φ(q)·z + eps), the denominator beside the product.

For narrow heads all three are a few microseconds long and mostly latency, so each starts while the one before it still runs
(programmatic dependent launch), and waits where it needs its results: the third has φ(q) when s is ready. Blocks that start
so take the first place that becomes free, and crowd on the multiprocessors that finish first; for wide heads, whose blocks
have much to do, that costs more than the wait, and the launches follow one another.

In the first launch the reduction axis is outermost in both operands, and the compiler turns them around on chip. The larger
the tile of s, the rarer that is, and the less often k and v are read: half of a wide head goes into the registers of a block.
"""

import functools
import math

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel

from tilebench_operators._cutile_dependent import launch_dependent

LOG2_E = math.log2(math.e)
ZERO = ct.PaddingMode.ZERO


def phi(x):
    return ct.where(x > 0, x + 1.0, ct.exp2(x * LOG2_E, flush_to_zero=True))


@ct.kernel
def parts_kernel(
    k, v, states, sums, chunks_per_split, TI: ct.Constant[int], TJ: ct.Constant[int], ROWS: ct.Constant[int]
):  # fmt: skip
    """states [splits, D, D] and sums [splits, D] of one split's chunks_per_split·ROWS rows of k, v [M, D].

    One TI × TJ tile of a state per block.
    """
    ct.grid_dependency_control_launch_dependents()
    split, i, j = ct.bid(2), ct.bid(1), ct.bid(0)
    chunks = ct.cdiv(k.shape[0], ROWS)
    state = ct.zeros((TI, TJ), ct.float32)
    total = ct.zeros((ROWS, TI), ct.float32)  # summed over the rows once, at the end
    for chunk in range(split * chunks_per_split, ct.minimum(chunks, (split + 1) * chunks_per_split)):
        # φ(0) is 1, so rows beyond M must be zeroed after φ. Padding with -inf would do it before, but TMA, which this load
        # becomes, pads with zeros whatever is asked for (seen with cuda-tile 1.7 on an H200).
        rows = chunk * ROWS + ct.arange(ROWS, dtype=ct.int32)
        features = phi(ct.load(k, (chunk, i), (ROWS, TI), padding_mode=ZERO))
        features = ct.where(rows[:, None] < k.shape[0], features, 0.0)
        total += features
        value = ct.load(v, (chunk, j), (ROWS, TJ), padding_mode=ZERO)
        state = ct.mma(ct.transpose(features).astype(ct.tfloat32), value.astype(ct.tfloat32), state)
    ct.store(states, (split, i, j), state.reshape((1, TI, TJ)))
    if j == 0:
        ct.store(sums, (split, i), ct.sum(total, 0, keepdims=True))


@ct.kernel
def sum_kernel(
    states, sums, state, z, SPLITS: ct.Constant[int], HEIGHT: ct.Constant[int], WIDTH: ct.Constant[int]
):  # fmt: skip
    """state [D, D] is the transposed sum of states [splits, D, D], z [D] that of sums [splits, D]; splits <= SPLITS."""
    ct.grid_dependency_control_launch_dependents()
    i, j = ct.bid(0), ct.bid(1)
    ct.grid_dependency_control_wait()
    tile = ct.load(states, (0, i, j), (SPLITS, HEIGHT, WIDTH), padding_mode=ZERO, allow_tma=False)
    ct.store(state, (j, i), ct.transpose(ct.sum(tile, 0)), allow_tma=False)
    if i == 0:
        part = ct.load(sums, (0, j), (SPLITS, WIDTH), padding_mode=ZERO, allow_tma=False)
        ct.store(z, (j,), ct.sum(part, 0), allow_tma=False)


@ct.kernel
def output_kernel(
    q, state, z, o, eps, BM: ct.Constant[int], BN: ct.Constant[int], BK: ct.Constant[int], WHOLE: ct.Constant[bool],
    EXACT: ct.Constant[bool],
):  # fmt: skip
    """o [M, D]; q [M, D], state [D, D] is sᵀ, z [D]. One BM × BN tile of o per block.

    WHOLE says that BK >= D and that the launch is a dependent one, EXACT that BK divides D: then z is loaded without checks,
    each of which would be a branch around one number.
    """
    # The tiles of the same rows of q side by side, so that q comes from memory once.
    m, j = ct.bid(1), ct.bid(0)
    numerator = ct.zeros((BM, BN), ct.float32)
    # Padding of φ(q) needs no care: s and z load as zeros beyond D.
    if WHOLE:
        features = phi(ct.load(q, (m, 0), (BM, BK), padding_mode=ZERO))
        ct.grid_dependency_control_wait()
        tile = ct.transpose(ct.load(state, (j, 0), (BN, BK), padding_mode=ZERO))
        numerator = ct.mma(features.astype(ct.tfloat32), tile.astype(ct.tfloat32), numerator)
        products = features * ct.load(z, (0,), (BK,), padding_mode=ZERO, allow_tma=False)[None, :]
    else:
        products = ct.zeros((BM, BK), ct.float32)  # φ(q)·z, summed over d once, at the end
        for d in range(ct.cdiv(q.shape[1], BK)):
            features = phi(ct.load(q, (m, d), (BM, BK), padding_mode=ZERO))
            tile = ct.transpose(ct.load(state, (j, d), (BN, BK), padding_mode=ZERO))
            numerator = ct.mma(features.astype(ct.tfloat32), tile.astype(ct.tfloat32), numerator)
            if EXACT:
                weights = ct.load(z, (d,), (BK,), check_bounds=False, allow_tma=False)
            else:
                weights = ct.load(z, (d,), (BK,), padding_mode=ZERO, allow_tma=False)
            products += features * weights[None, :]
    ct.store(o, (m, j), numerator * (1.0 / (ct.sum(products, 1, keepdims=True) + eps)))


@functools.cache
def hinted(kernel: ct.kernel, warps: int, occupancy: int) -> ct.kernel:
    """`kernel` for `occupancy` blocks of `warps` warps on a multiprocessor. A hinted kernel has compiled code of its own."""
    return kernel.replace_hints(num_worker_warps=warps, occupancy=occupancy)


def _power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, eps: float, *, TI: int, TJ: int, ROWS: int, SPLITS: int,
    WARPS: int, BM: int, BN: int, OCCUPANCY: int,
) -> torch.Tensor:  # fmt: skip
    """Return o [M, D] of q, k, v [M, D]. At most SPLITS blocks share the rows of one tile of s."""
    M, D = q.shape
    stream = torch.cuda.current_stream()
    chunks = ct.cdiv(ct.cdiv(M, SPLITS), ROWS)  # of ROWS rows, in one split
    splits = ct.cdiv(M, chunks * ROWS)  # so that none is empty
    states, state = (torch.empty(shape, dtype=q.dtype, device=q.device) for shape in ([splits, D, D], [D, D]))
    sums, z = (torch.empty(shape, dtype=q.dtype, device=q.device) for shape in ([splits, D], [D]))
    o = torch.empty_like(q)
    grid = (ct.cdiv(D, TJ), ct.cdiv(D, TI), splits)
    ct.launch(stream, grid, hinted(parts_kernel, WARPS, 8 // WARPS), (k, v, states, sums, chunks, TI, TJ, ROWS))
    whole = D <= 64  # a tile of q that 128 threads keep in registers
    launch = launch_dependent if whole else ct.launch
    lanes = _power(splits)
    height = min(64, 256 // lanes)  # of a tile of 16 columns, so that a thread adds up to 32 numbers
    arguments = (states, sums, state, z, lanes, height, 16)
    launch(stream, (ct.cdiv(D, height), ct.cdiv(D, 16)), sum_kernel, arguments)
    grid = (ct.cdiv(D, BN), ct.cdiv(M, BM))
    BK = max(32, _power(D)) if whole else 32
    arguments = (q, state, z, o, eps, BM, BN, BK, whole, D % BK == 0)
    launch(stream, grid, hinted(output_kernel, 4, OCCUPANCY), arguments)
    return o


def _config(
    case: Case, TI: int, TJ: int, ROWS: int, blocks: int, warps: int, BM: int, BN: int, occupancy: int
) -> Config:
    """SPLITS gives about `blocks` blocks in the first launch, each with at least two chunks of ROWS rows."""
    tiles = -(-case["D"] // TI) * -(-case["D"] // TJ)
    splits = max(1, min(128, blocks // tiles, -(-case["M"] // (2 * ROWS))))
    return {
        "TI": TI, "TJ": TJ, "ROWS": ROWS, "SPLITS": splits, "WARPS": warps, "BM": BM, "BN": BN, "OCCUPANCY": occupancy
    }  # fmt: skip


def default(case: Case) -> Config:
    M, D = case["M"], case["D"]
    wide = D > 128 and M > 2048  # one block of eight warps for each of 132 multiprocessors
    width = min(64, max(16, _power(D)))
    BN = 128 if wide else width
    while BN > 32 and -(-M // 64) * -(-D // BN) < 120:  # the widest tile of o with which each of them has a block
        BN //= 2
    if wide:
        return _config(case, 128, 128, 32, 132, 8, 64, BN, 2)
    if D > BN and -(-M // 64) * -(-D // BN) > 264:  # more blocks than run at once
        BN *= 2
    # Longer products where each part has rows enough for them.
    rows = 64 if M >= 8192 or D > 128 else 32
    return _config(case, width, width, rows, 264 if width == 64 else 132, 4, 64, BN, 2)


def space(case: Case) -> list[Config]:
    widest = min(128, max(16, _power(case["D"])))
    narrow = min(64, widest)
    tiles = {(narrow, narrow, 4, 264), (narrow, narrow, 4, 132), (narrow, widest, 8, 264), (widest, widest, 8, 132)}
    configs = [default(case)] + [
        _config(case, ti, tj, rows, blocks, warps, 64, bn, occupancy)
        for ti, tj, warps, blocks in sorted(tiles)
        for rows in (32, 64)
        if ti * rows < 128 * 64  # else shared memory does not hold the tiles
        for bn in sorted({min(32, narrow), narrow, widest})
        for occupancy in ((1, 2) if bn > 32 else (2,))
    ]
    return [config for n, config in enumerate(configs) if config not in configs[:n]]


KERNEL = Kernel(run=run, default=default, space=space)
