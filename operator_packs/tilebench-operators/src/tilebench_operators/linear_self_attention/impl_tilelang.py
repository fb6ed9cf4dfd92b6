"""Linear self-attention in TileLang: one cooperative launch in three steps, between which all blocks wait for each other.

1. A block multiplies a tile of sᵀ = vᵀ·φ(k), and its share of z, the column sums of φ(k), over one of `splits` parts of the
   rows, and stores this part;
2. the blocks add the parts, each a few elements of s and z;
3. a block multiplies a tile of o = φ(q)·s / (φ(q)·z + eps).

φ(q) and φ(k) never reach memory. The rows of q follow k and v into shared memory, while the first step ends and the second,
which takes little from memory, runs; so the third fetches only its tile of s, from the L2 cache.

Hopper's tensor cores take TF32 operands from shared memory only with the reduction axis innermost. In the first step that is
the outermost axis of k and v: φ(k) is turned around on its way through registers, and v, the left operand, is multiplied
from registers. The third step computes oᵀ = sᵀ·φ(q)ᵀ: the rows of q of a block may be any multiple of 16, so that the
multiprocessors get equal shares.

Three launches (_general.py) do the rest: heads that are not 64, 128 or 256 wide, more rows than shared memory holds, and
narrow heads, which finish before two waits for all blocks would pay.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Device, Kernel, multiprocessors
from tilelang.layout import make_full_bank_swizzled_layout

from tilebench_operators._tilelang_wgmma import has_wgmma
from tilebench_operators.linear_self_attention import _general

MULTIPROCESSORS = 132  # of the H200
LINE = 32  # fp32 numbers: 128 bytes, the width of a swizzled tile
ROOM = 229_376  # bytes of shared memory for the tiles
OTHERS = 8192  # of which sums and weights take no more


def to_tf32(x):
    """Half a unit of TF32 is added: the tensor cores cut the other bits off, so this rounds, by one instruction."""
    return T.reinterpret(T.reinterpret(x, T.uint32) + T.uint32(0x1000), T.tfloat32)


@tilelang.jit(
    pass_configs={
        tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True,
        # All threads load, compute and multiply, and their barriers are written out here: barriers of the whole grid can't
        # stand in the branch of one role.
        tilelang.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True,
        tilelang.PassConfigKey.TL_DISABLE_THREAD_STORAGE_SYNC: True,
    }
)
def joint_kernel(D: int, TI: int, TJ: int, ROWS: int, SPLITS: int, BM: int, BN: int, stages: int):
    """o [M, D] of q, k, v [M, D]; parts [splits, D·D + D], state [D, D], which is sᵀ, and z [D] are scratch.

    A TJ × TI tile of sᵀ over chunks·ROWS rows per block in the first step, BM × BN of o in the third. blocks must be at
    least as many as there are of both, and no more than there are multiprocessors.
    """
    M, splits = T.dynamic("M"), T.dynamic("splits")
    threads = 2 * TJ  # a warp group for each 64 rows of a tile of sᵀ
    QUADS = TI * ROWS // 4 // threads  # of a column of φ(k), per thread
    LINES = D // LINE
    N = D * D + D
    # Addition: LANES threads side by side take four numbers each, and as many groups of them share the parts.
    LANES = D * D // 512
    GROUPS = threads // LANES
    MOST = -(-SPLITS // GROUPS)
    # Lines of q that have a place of their own; the others take that of k and v after the first step, as tiles of sᵀ do later.
    first_bytes = (stages * (TI + TJ) + 2 * TI) * ROWS * 4
    EARLY = min(LINES, (ROOM - first_bytes) // (BM * LINE * 4))
    LATE = LINES - EARLY
    slots = min(LINES, (first_bytes - OTHERS - LATE * BM * LINE * 4) // (BN * LINE * 4))
    # Eight threads take φ of a line of q.
    HEIGHT = threads // 8
    TURNS = -(-BM // HEIGHT)
    QUADS_O = BN // 4  # of a row of a tile of o, which that many threads store
    SIDE = threads // QUADS_O
    wgmma = has_wgmma()
    multiply = T.wgmma_gemm if wgmma else T.gemm  # without waiting, and with
    by_rows = T.GemmWarpPolicy.FullRow
    by_tile = by_rows if BN == TJ else T.GemmWarpPolicy.FullCol

    @T.macro
    def load(k, v, k_tile, v_tile, full, slot, row, i0, j0):
        """Load rows from `row` on of a tile of k and of v."""
        T.tma_copy(k[row : row + ROWS, i0 : i0 + TI], k_tile[slot, :, :], barrier=full[slot])
        for line in T.unroll(TJ // LINE):
            column = j0 + line * LINE
            T.tma_copy(v[row : row + ROWS, column : column + LINE], v_tile[slot, line, :, :], barrier=full[slot])
        T.mbarrier_arrive(full[slot])

    @T.macro
    def load_q(q, tile, barrier, m0, first, lines):
        """Load lines of a block's rows of q, from line `first` on."""
        for line in T.unroll(lines):
            column = (first + line) * LINE
            T.tma_copy(q[m0 : m0 + BM, column : column + LINE], tile[line, :, :], barrier=barrier)

    @T.macro
    def multiply_lines(state, state_tile, tile, z_tile, numerator, queries, rounded, denominators, n0, first, lines):
        """Take φ of a block's lines of q, from line `first` on, and multiply them by those of sᵀ.

        A loop: its code, written out, would be as long as it takes to fetch it. One copy, or the end of one, is counted for each
        line, `slots` - 1 lines ahead.
        """
        thread = T.get_thread_binding()
        for at in T.serial(lines):
            line = first + at
            for turn in T.unroll(TURNS):
                if turn * HEIGHT + thread // 8 < BM:
                    for x in T.vectorized(4):
                        queries[turn, x] = T.cast(tile[at, turn * HEIGHT + thread // 8, thread % 8 * 4 + x], T.float32)
            for turn in T.unroll(TURNS):
                for x in T.unroll(4):
                    queries[turn, x] = _general.phi(queries[turn, x])
                    denominators[turn] += queries[turn, x] * z_tile[line * LINE + thread % 8 * 4 + x]
                    rounded[x] = to_tf32(queries[turn, x])
                if turn * HEIGHT + thread // 8 < BM:
                    for x in T.vectorized(4):
                        tile[at, turn * HEIGHT + thread // 8, thread % 8 * 4 + x] = rounded[x]
            T.ptx_wait_group(slots - 2)
            if wgmma:
                T.wait_wgmma(0)
            T.fence_proxy_async()
            T.sync_threads()
            multiply(state_tile[line % slots, :, :], tile[at, :, :], numerator, transpose_B=True, policy=by_tile)
            next_line = line + slots - 1  # in the slot of the product that has just ended
            if next_line < LINES:
                T.async_copy(
                    state[n0 : n0 + BN, next_line * LINE : (next_line + 1) * LINE], state_tile[next_line % slots, :, :]
                )
            else:
                T.ptx_commit_group()

    @T.prim_func
    def linear_attention(
        q: T.Tensor((M, D), T.tfloat32),
        k: T.Tensor((M, D), T.float32),
        v: T.Tensor((M, D), T.float32),
        parts: T.Tensor((splits, N), T.float32),
        state: T.Tensor((D, D), T.tfloat32),
        z: T.Tensor((D,), T.float32),
        o: T.Tensor((M, D), T.float32),
        eps: T.float32,
        chunks: T.int32,
        blocks: T.int32,
    ):
        with T.Kernel(blocks, threads=threads) as block:
            thread = T.get_thread_binding()
            k_tile = T.alloc_shared((stages, ROWS, TI), T.float32)
            v_tile = T.alloc_shared((stages, TJ // LINE, ROWS, LINE), T.float32)
            T.annotate_layout({v_tile: make_full_bank_swizzled_layout(v_tile)})
            features = T.alloc_shared((2, TI, ROWS), T.tfloat32)  # φ(k), turned around
            q_tile = T.alloc_shared((EARLY, BM, LINE), T.tfloat32)
            q_late = T.alloc_shared((LATE, BM, LINE), T.tfloat32) if LATE else q_tile
            sums_tile = T.alloc_shared((threads,), T.float32)
            groups_tile = T.alloc_shared((GROUPS, LANES * 4), T.float32)
            state_tile = T.alloc_shared((slots, BN, LINE), T.tfloat32)
            z_tile = T.alloc_shared((D,), T.float32)
            weights = T.alloc_shared((BM,), T.float32)
            # Four numbers more in a row: so 32 threads, which write eight of one row and four rows, write to 32 banks.
            o_tile = T.alloc_shared((BM, BN + 4), T.float32)
            full = T.alloc_barrier([threads] * stages)
            q_full = T.alloc_barrier(threads)

            values = T.alloc_fragment((TJ, ROWS), T.tfloat32)
            part = T.alloc_fragment((TJ, TI), T.float32)
            numerator = T.alloc_fragment((BN, BM), T.float32)
            coming = T.alloc_fragment((TJ, ROWS), T.float32)
            keys = T.alloc_local((QUADS, 4), T.float32)
            queries = T.alloc_local((TURNS, 4), T.float32)
            mine = T.alloc_local((MOST, 4), T.float32)
            rounded = T.alloc_local((4,), T.tfloat32)
            denominators = T.alloc_local((TURNS,), T.float32)
            total = T.alloc_var(T.float32, init=0.0)

            tiles = (D // TI) * (D // TJ)
            split = block // tiles
            i0 = block % (D // TI) * TI
            j0 = block % tiles // (D // TI) * TJ
            start = split * chunks * ROWS
            steps = T.max(0, T.min(chunks, T.ceildiv(M - start, ROWS)))
            n0 = block % (D // BN) * BN
            m0 = block // (D // BN) * BM

            # Step 1.
            for step in T.serial(stages):
                if step < steps:
                    load(k, v, k_tile, v_tile, full, step, start + step * ROWS, i0, j0)
            # The compiler places tiles in the order of their first use: this one next to those of k and v, so that together they
            # make room for the later ones. The same thread overwrites the zero.
            features[0, thread % TI, thread // TI * 4] = T.cast(0, T.tfloat32)
            T.clear(part)
            for step in T.serial(steps):
                slot = step % stages
                T.mbarrier_wait_parity(full[slot], step // stages % 2)
                # Of each eight rows the even ones come first, here and in values: so 32 threads, which read four rows of
                # eight values for a product, find them in 32 banks of a swizzled tile.
                for u in T.unroll(QUADS):
                    quad = thread // TI + u * (threads // TI)
                    for x in T.unroll(4):
                        keys[u, x] = k_tile[slot, quad // 2 * 8 + x * 2 + quad % 2, thread % TI]
                for j, m in T.Parallel(TJ, ROWS):
                    coming[j, m] = v_tile[slot, j // LINE, m // 8 * 8 + m % 4 * 2 + m % 8 // 4, j % LINE]
                for u in T.unroll(QUADS):
                    quad = thread // TI + u * (threads // TI)
                    for x in T.unroll(4):
                        keys[u, x] = _general.phi(keys[u, x])
                        total = total + keys[u, x]
                        rounded[x] = to_tf32(keys[u, x])
                    for x in T.vectorized(4):
                        features[step % 2, thread % TI, quad * 4 + x] = rounded[x]
                if wgmma:
                    T.wait_wgmma(0)
                for j, m in T.Parallel(TJ, ROWS):
                    values[j, m] = to_tf32(coming[j, m])
                T.fence_proxy_async()
                T.sync_threads()
                if step + stages < steps:
                    next_row = start + (step + stages) * ROWS
                    load(k, v, k_tile, v_tile, full, slot, next_row, i0, j0)
                if step == T.max(0, steps - stages):  # k and v are all on their way
                    load_q(q, q_tile, q_full, m0, 0, EARLY)
                multiply(values, features[step % 2, :, :], part, transpose_B=True, policy=by_rows)
            if steps == 0:
                load_q(q, q_tile, q_full, m0, 0, EARLY)
            if wgmma:
                T.wait_wgmma(0)
            T.fence_proxy_async()
            T.sync_threads()
            load_q(q, q_late, q_full, m0, EARLY, LATE)
            T.mbarrier_arrive(q_full)
            if steps > 0:
                for j, i in T.Parallel(TJ, TI):
                    parts[split, (j0 + j) * D + i0 + i] = part[j, i]
                sums_tile[thread] = total
                T.sync_threads()
                if j0 == 0 and thread < TI:
                    for x in T.unroll(1, threads // TI):
                        total = total + sums_tile[thread + x * TI]
                    # Rows beyond M are zero; φ(0) is 1. In s they met the zeros of v.
                    padding = T.max(0, start + steps * ROWS - M)
                    parts[split, D * D + i0 + thread] = total - T.cast(padding, T.float32)
            T.sync_grid()

            # Step 2.
            lane, group = thread % LANES, thread // LANES
            for turn in T.serial(T.ceildiv(T.ceildiv(N, LANES * 4) - block, blocks)):
                x0 = ((turn * blocks + block) * LANES + lane) * 4
                for n in T.unroll(MOST):
                    for x in T.vectorized(4):
                        mine[n, x] = 0
                    if n * GROUPS + group < splits and x0 < N:
                        for x in T.vectorized(4):
                            mine[n, x] = parts[n * GROUPS + group, x0 + x]
                for n in T.unroll(1, MOST):
                    for x in T.unroll(4):
                        mine[0, x] += mine[n, x]
                for x in T.vectorized(4):
                    groups_tile[group, lane * 4 + x] = mine[0, x]
                T.sync_threads()
                if group == 0 and x0 < N:
                    for n in T.unroll(1, GROUPS):
                        for x in T.vectorized(4):
                            mine[0, x] += groups_tile[n, lane * 4 + x]
                    if x0 < D * D:
                        for x in T.unroll(4):
                            rounded[x] = to_tf32(mine[0, x])
                        for x in T.vectorized(4):
                            state[x0 // D, x0 % D + x] = rounded[x]
                    else:
                        for x in T.vectorized(4):
                            z[x0 - D * D + x] = mine[0, x]
                T.sync_threads()
            T.sync_grid()

            # Step 3. Tiles of sᵀ come by cp.async: TMA may not see what other multiprocessors have stored in this launch.
            T.mbarrier_wait_parity(q_full, 0)
            if m0 < M:
                for line in T.unroll(slots - 1):
                    T.async_copy(state[n0 : n0 + BN, line * LINE : (line + 1) * LINE], state_tile[line, :, :])
                if thread < D // 4:
                    for x in T.vectorized(4):
                        z_tile[thread * 4 + x] = z[thread * 4 + x]
                for turn in T.unroll(TURNS):
                    denominators[turn] = 0
                T.clear(numerator)
                T.sync_threads()
                multiply_lines(
                    state, state_tile, q_tile, z_tile, numerator, queries, rounded, denominators, n0, 0, EARLY
                )
                if LATE:
                    multiply_lines(
                        state, state_tile, q_late, z_tile, numerator, queries, rounded, denominators, n0, EARLY, LATE
                    )
                for turn in T.unroll(TURNS):
                    for x in T.unroll(3):
                        denominators[turn] += T.shfl_xor(denominators[turn], 1 << x)
                    if thread % 8 == 0 and turn * HEIGHT + thread // 8 < BM:
                        weights[turn * HEIGHT + thread // 8] = 1 / (denominators[turn] + eps)
                if wgmma:
                    T.wait_wgmma(0)
            # By a tile in the place of that of q, because a thread's numbers of the product lie in as many rows: each would take
            # a store, and an address, of its own. Blocks without rows come here too: what is used in a branch has its place
            # until the branch ends.
            T.sync_threads()
            for n, m in T.Parallel(BN, BM):
                o_tile[m, n] = numerator[n, m] * weights[m]
            T.sync_threads()
            for turn in T.serial(BM // SIDE):
                row = turn * SIDE + thread // QUADS_O
                if m0 + row < M:
                    for x in T.vectorized(4):
                        o[m0 + row, n0 + thread % QUADS_O * 4 + x] = o_tile[row, thread % QUADS_O * 4 + x]

    return linear_attention


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, eps: float, *, JOINT: bool, TI: int, TJ: int, ROWS: int,
    SPLITS: int, BM: int, BN: int, stages: int, threads: int,
) -> torch.Tensor:  # fmt: skip
    """Return o [M, D] of q, k, v [M, D]. At most SPLITS blocks share the rows of one tile of s. JOINT: in one launch."""
    M, D = q.shape
    if not JOINT:
        return _general.attention(
            q, k, v, eps, TI=TI, TJ=TJ, ROWS=ROWS, SPLITS=SPLITS, BM=BM, BN=BN, stages=stages, threads=threads
        )
    chunks = -(-M // (SPLITS * ROWS))  # of ROWS rows, in one split
    splits = -(-M // (chunks * ROWS))  # so that none is empty
    blocks = multiprocessors(q.device)
    if blocks < max(splits * (D // TI) * (D // TJ), -(-M // BM) * (D // BN)):  # the blocks could not all run at once
        return _general.attention(q, k, v, eps, **_general.default(M, D))
    parts = torch.empty([splits, D * D + D], dtype=torch.float32, device=q.device)
    state = torch.empty([D, D], dtype=torch.float32, device=q.device)
    z = torch.empty([D], dtype=torch.float32, device=q.device)
    o = torch.empty_like(q)
    joint_kernel(D, TI, TJ, ROWS, SPLITS, BM, BN, stages)(q, k, v, parts, state, z, o, eps, chunks, blocks)
    return o


def _joint(case: Case, TI: int, TJ: int, ROWS: int, BN: int, stages: int) -> Config | None:
    """A configuration of one launch; None where it doesn't fit into shared memory. A part has at least two chunks."""
    M, D = case["M"], case["D"]
    tiles = D // TI * (D // TJ)
    splits = max(1, min(MULTIPROCESSORS // tiles, -(-M // (2 * ROWS))))
    # Equal shares of o. Few rows share their tile of s among too few.
    rows = -(-M // (MULTIPROCESSORS // (D // BN)))
    unit = 16 if BN == TJ else 32  # products 16 columns wide, of which two warp groups share a tile of 64 rows
    BM = max(64 if D > 128 else 32, -(-rows // unit) * unit)
    first_bytes = (stages * (TI + TJ) + 2 * TI) * ROWS * 4
    late_bytes = max(0, D // LINE - (ROOM - first_bytes) // (BM * LINE * 4)) * BM * LINE * 4
    if BM > 256 or first_bytes - OTHERS - late_bytes < min(3, D // LINE) * BN * LINE * 4:  # TMA; tiles of sᵀ in flight
        return None
    return {
        "JOINT": True, "TI": TI, "TJ": TJ, "ROWS": ROWS, "SPLITS": splits, "BM": BM, "BN": BN, "stages": stages,
        "threads": 2 * TJ,
    }  # fmt: skip


def _joints(case: Case) -> list[Config]:
    """Configurations of one launch, the best first: wide tiles of o need few rows of q, narrow ones little of s."""
    D = case["D"]
    if D not in (64, 128, 256):
        return []
    TI, TJ = max(64, D // 2), min(128, D)
    found = [
        _joint(case, TI, TJ, rows, bn, stages)
        for bn in sorted({64, TJ})
        for rows, stages in ((32, 3), (32, 2), (16, 4), (32, 4))
    ]
    return [config for config in found if config is not None]


def _separate(config: dict[str, int]) -> Config:
    return {"JOINT": False, **config}


def default(case: Case) -> Config:
    M, D = case["M"], case["D"]
    joints = _joints(case)
    if joints and D >= 128:
        return joints[0]
    return _separate(_general.default(M, D))


def space(case: Case) -> list[Config]:
    configs = [default(case), *_joints(case), *map(_separate, _general.space(case["M"], case["D"]))]
    return [config for n, config in enumerate(configs) if config not in configs[:n]]


def unsupported(case: Case, device: Device) -> str | None:
    if device.capability < (9, 0):
        return "TileLang 0.1.15 pipelines a loop of unknown length only where there is TMA (compute capability 9.0)"
    return None


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
