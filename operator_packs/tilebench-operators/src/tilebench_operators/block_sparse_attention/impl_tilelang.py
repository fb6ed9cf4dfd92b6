"""Block-sparse causal attention in TileLang: persistent blocks, each of which walks the lists of many row blocks.

A tile is one row block of PACK heads that share keys, values and lists; each head's rows belong to one warp group. Lists
are short, so most of a tile's time would be the way to its first key block: its list's range, an entry, the block that
it names. One more warp group therefore only loads, by TMA into rings of `stages` key and value blocks, and runs ahead
into the lists of the next tile while the others still compute. It alone reads the lists, and takes the diagonal block
first, so that only a tile's first step has a mask: to compare and select takes as long as to find the maximum.

A step multiplies q by the next keys first and the *previous* weights by their values next, so that the tensor cores
work on the second product while the softmax of the new scores runs. The groups take turns (`PINGPONG`): one issues its products
while the other takes its softmax. The products are issued without waiting
(T.wgmma_gemm), which leaves waits and barriers to this file. GPUs without WGMMA run the kernel of _general.py, which takes
one head at a time.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Device, Kernel

from tilebench_operators._tilelang_matmul import LOADER_REGISTERS, LOADER_THREADS, worker_registers
from tilebench_operators._tilelang_wgmma import has_wgmma
from tilebench_operators.block_sparse_attention import _general

LOG2_E = 1.4426950408889634
HALF = 64  # columns: 128 bytes, the width of a swizzled tile in shared memory
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
def attention_kernel(
    dtype: torch.dtype, D: int, BLOCK_M: int, BLOCK_N: int, pack: int, stages: int, pingpong: bool
):  # fmt: skip
    """q, o [B·H, M, D], k, v [B·H_kv, M, D]; crow [num_layout·(rows + 1)], col [num_layout·rows·cols].

    Rows beyond M load as zeros and are not stored; keys beyond M are right of the diagonal of every stored row.
    """
    if not has_wgmma():
        return _general.attention_function(dtype, D, BLOCK_M, BLOCK_N)
    heads_q, heads_kv, M = T.dynamic("heads_q"), T.dynamic("heads_kv"), T.dynamic("M")
    crow_size, col_size = T.dynamic("crow_size"), T.dynamic("col_size")
    ROWS = pack * BLOCK_M
    workers = 2 * ROWS  # threads: 128 for 64 rows
    groups = workers // 128
    members = tuple(range(groups))
    registers = worker_registers(workers, 1)
    ordered = pingpong and groups == 2

    @T.macro
    def await_turn(order, group, step):
        """Wait until the other group has issued its products of the step before (the first group), or of this one."""
        if ordered:
            T.mbarrier_wait_parity(order[group], step % 2 ^ 1 ^ group)

    @T.macro
    def hide(scores, offset):
        """Row i of a head sees the block's keys j <= i + offset."""
        for i, j in T.Parallel(ROWS, BLOCK_N):
            scores[i, j] = T.if_then_else(i % BLOCK_M + offset >= j, scores[i, j], -T.infinity(T.float32))

    @T.macro
    def softmax(scores, scale, maximum, previous, shrink):
        """One step of the online softmax: scores become weights. `scale` holds log2 e."""
        T.copy(maximum, previous)
        T.reduce_max(scores, maximum, dim=1, clear=False)
        for i in T.Parallel(ROWS):
            shrink[i] = T.exp2((previous[i] - maximum[i]) * scale)
        for i, j in T.Parallel(ROWS, BLOCK_N):
            scores[i, j] = T.exp2(scores[i, j] * scale - maximum[i] * scale)

    @T.prim_func
    def block_sparse_attention(
        q: T.Tensor((heads_q, M, D), dtype),
        k: T.Tensor((heads_kv, M, D), dtype),
        v: T.Tensor((heads_kv, M, D), dtype),
        o: T.Tensor((heads_q, M, D), dtype),
        crow: T.Tensor((crow_size,), T.int32),
        col: T.Tensor((col_size,), T.int32),
        crow_stride: T.int32,
        col_stride: T.int32,
        num_layout: T.int32,
        heads: T.int32,
        group: T.int32,
        scale: T.float32,
        programs: T.int32,
    ):
        with T.Kernel(programs, threads=workers + LOADER_THREADS) as program:
            T.assume(num_layout > 0)
            T.assume(heads > 0)
            T.assume(group > 0)
            T.assume(programs > 0)
            q_tile = T.alloc_shared((2, ROWS, D), dtype)
            k_tile = T.alloc_shared((stages, BLOCK_N, D), dtype)
            v_tile = T.alloc_shared((stages, BLOCK_N, D), dtype)
            o_tile = T.alloc_shared((ROWS, D), dtype)
            q_full = T.alloc_barrier([LOADER_THREADS] * 2)
            k_full = T.alloc_barrier([LOADER_THREADS] * stages)
            v_full = T.alloc_barrier([LOADER_THREADS] * stages)
            q_free = T.alloc_barrier([workers] * 2)
            k_free = T.alloc_barrier([workers] * stages)
            v_free = T.alloc_barrier([workers] * stages)
            order = T.alloc_barrier([128] * 2)
            # What the loader tells the others of a tile: its steps, and the mask of the first one.
            steps = T.alloc_shared((2,), T.int32, scope="shared")
            offsets = T.alloc_shared((2,), T.int32, scope="shared")
            # Variables: expressions would be computed again at every use.
            row, head, turns = T.alloc_var(T.int32), T.alloc_var(T.int32), T.alloc_var(T.int32)
            # The place in the rings, how often they were gone round (its last bit), and the place before.
            slot, phase, before = T.alloc_var(T.int32), T.alloc_var(T.int32), T.alloc_var(T.int32)
            phase_before = T.alloc_var(T.int32)
            slot = 0
            phase = 0
            before = 0
            phase_before = 0
            row_blocks = T.ceildiv(M, BLOCK_M)
            turns = T.ceildiv(row_blocks * (heads_q // pack) - program, programs)

            with T.ws(groups):
                T.dec_max_nreg(LOADER_REGISTERS)
                layout, start, length = T.alloc_var(T.int32), T.alloc_var(T.int32), T.alloc_var(T.int32)
                first, n = T.alloc_var(T.int32), T.alloc_var(T.int32)
                for turn in T.serial(turns):
                    head = (program + turn * programs) // row_blocks
                    row = program + turn * programs - head * row_blocks
                    head = head * pack
                    layout = head % heads % num_layout
                    start = crow[layout * crow_stride + row]
                    length = crow[layout * crow_stride + row + 1] - start
                    start = start + layout * col_stride
                    T.mbarrier_wait_parity(q_free[turn % 2], turn // 2 % 2 ^ 1)
                    for i, half in T.grid(pack, D // HALF):
                        T.tma_copy(
                            q[head + i, row * BLOCK_M, half * HALF],
                            q_tile[turn % 2, i * BLOCK_M : (i + 1) * BLOCK_M, half * HALF : (half + 1) * HALF],
                            barrier=q_full[turn % 2],
                        )
                    # An empty list is walked as one diagonal block, of which the mask hides everything.
                    first = 0
                    n = row
                    if length > 0:
                        first = length - 1  # the diagonal block, unless it is not listed or not the last
                        n = col[start + first]
                        if n != row:
                            for entry in T.serial(length - 1):
                                if col[start + entry] == row:
                                    first = entry
                                    n = row
                    steps[turn % 2] = T.max(length, 1)
                    offsets[turn % 2] = T.if_then_else(length > 0, (row - n) * BLOCK_M, -ROWS)
                    T.mbarrier_arrive(q_full[turn % 2])
                    for entry in T.serial(T.max(length, 1)):
                        if entry > 0:
                            n = col[start + T.if_then_else(entry <= first, entry - 1, entry)]
                        T.mbarrier_wait_parity(k_free[slot], phase ^ 1)
                        T.tma_copy(k[head // group, n * BLOCK_N, 0], k_tile[slot, :, :], barrier=k_full[slot])
                        T.mbarrier_arrive(k_full[slot])
                        T.mbarrier_wait_parity(v_free[slot], phase ^ 1)
                        T.tma_copy(v[head // group, n * BLOCK_N, 0], v_tile[slot, :, :], barrier=v_full[slot])
                        T.mbarrier_arrive(v_full[slot])
                        slot = slot + 1
                        if slot == stages:
                            slot = 0
                            phase = phase ^ 1

            with T.ws(*members):
                T.inc_max_nreg(registers)
                scores = T.alloc_fragment((ROWS, BLOCK_N), T.float32)
                p = T.alloc_fragment((ROWS, BLOCK_N), dtype)
                result = T.alloc_fragment((ROWS, D), T.float32)
                maximum = T.alloc_fragment((ROWS,), T.float32)
                previous = T.alloc_fragment((ROWS,), T.float32)
                shrink = T.alloc_fragment((ROWS,), T.float32)
                sums = T.alloc_fragment((ROWS, BLOCK_N), T.float32)  # of weights; over the columns once, at the end
                total = T.alloc_fragment((ROWS,), T.float32)
                count, offset, step = T.alloc_var(T.int32), T.alloc_var(T.int32), T.alloc_var(T.int32)
                own = T.get_thread_binding() // 128
                step = 0
                for turn in T.serial(turns):
                    head = (program + turn * programs) // row_blocks
                    row = program + turn * programs - head * row_blocks
                    head = head * pack
                    T.clear(result)
                    T.fill(maximum, -1.0e30)  # finite, so that a row without keys yields no inf - inf
                    T.mbarrier_wait_parity(q_full[turn % 2], turn // 2 % 2)
                    count = steps[turn % 2]
                    offset = offsets[turn % 2]
                    T.mbarrier_wait_parity(k_full[slot], phase)
                    await_turn(order, own, step)
                    T.wgmma_gemm(
                        q_tile[turn % 2, :, :], k_tile[slot, :, :], scores,
                        transpose_B=True, clear_accum=True, policy=FULL_ROW,
                    )  # fmt: skip
                    if ordered:
                        T.mbarrier_arrive(order[1 - own])
                    step = step + 1
                    T.wait_wgmma(0)
                    T.mbarrier_arrive(k_free[slot])
                    hide(scores, offset)
                    softmax(scores, scale, maximum, previous, shrink)
                    T.copy(scores, sums)
                    T.copy(scores, p)
                    for _ in T.serial(1, count):
                        before = slot
                        phase_before = phase
                        slot = slot + 1
                        if slot == stages:
                            slot = 0
                            phase = phase ^ 1
                        T.mbarrier_wait_parity(k_full[slot], phase)
                        await_turn(order, own, step)
                        T.wgmma_gemm(
                            q_tile[turn % 2, :, :], k_tile[slot, :, :], scores,
                            transpose_B=True, clear_accum=True, policy=FULL_ROW,
                        )  # fmt: skip
                        for i, j in T.Parallel(ROWS, D):
                            result[i, j] *= shrink[i]
                        T.mbarrier_wait_parity(v_full[before], phase_before)
                        T.wgmma_gemm(p, v_tile[before, :, :], result, policy=FULL_ROW)
                        if ordered:
                            T.mbarrier_arrive(order[1 - own])
                        step = step + 1
                        T.wait_wgmma(1)  # the scores
                        T.mbarrier_arrive(k_free[slot])
                        softmax(scores, scale, maximum, previous, shrink)
                        for i, j in T.Parallel(ROWS, BLOCK_N):
                            sums[i, j] = sums[i, j] * shrink[i] + scores[i, j]
                        # This wait is over. But it is a loop, over which the assembler moves nothing: otherwise it would
                        # move the exponentials behind the wait for the product during which they are to be taken.
                        T.mbarrier_wait_parity(v_full[before], phase_before)
                        T.wait_wgmma(0)
                        T.mbarrier_arrive(v_free[before])
                        T.copy(scores, p)
                    T.mbarrier_arrive(q_free[turn % 2])
                    for i, j in T.Parallel(ROWS, D):
                        result[i, j] *= shrink[i]
                    T.mbarrier_wait_parity(v_full[slot], phase)
                    T.wgmma_gemm(p, v_tile[slot, :, :], result, policy=FULL_ROW)
                    T.reduce_sum(sums, total, dim=1)
                    T.wait_wgmma(0)
                    T.mbarrier_arrive(v_free[slot])
                    slot = slot + 1
                    if slot == stages:
                        slot = 0
                        phase = phase ^ 1
                    for i, j in T.Parallel(ROWS, D):
                        result[i, j] *= 1 / T.if_then_else(total[i] > 0, total[i], 1.0)
                    T.tma_store_wait(0)  # until the last tile's result has left shared memory
                    # A group waits for itself alone.
                    for g in members:
                        with T.ws(g):
                            T.sync_threads(1 + g, 128)
                    T.copy(result, o_tile)
                    T.fence_proxy_async()
                    for g in members:
                        with T.ws(g):
                            T.sync_threads(1 + g, 128)
                            for half in T.serial(D // HALF):
                                T.tma_copy(
                                    o_tile[g * BLOCK_M : (g + 1) * BLOCK_M, half * HALF : (half + 1) * HALF],
                                    o[head + g, row * BLOCK_M, half * HALF],
                                )
                T.tma_store_wait(0)

    return block_sparse_attention


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout_crow: torch.Tensor, layout_col: torch.Tensor,
    layout_crow_stride: int, layout_col_stride: int, num_layout: int, softmax_scale: float, num_heads: int,
    num_kv_heads: int, M: int, BLOCK_M: int, EVEN_M: bool, BLOCK_N: int, EVEN_N: bool, BLOCK_D: int,
    NUM_D_BLOCKS: int, *, PACK: int, stages: int, PINGPONG: bool, PROGRAMS: int,
) -> torch.Tensor:  # fmt: skip
    """Return o [B, H, M, D]; q [B, H, M, D], k and v [B, H_kv, M, D]."""
    group = num_heads // num_kv_heads
    if PACK > 1 and (num_layout > 1 or group % PACK):
        raise ValueError(f"{PACK} heads do not share their keys and lists")
    o = torch.empty_like(q)
    D = BLOCK_D * NUM_D_BLOCKS
    tiles = -(-M // BLOCK_M) * q.shape[0] * num_heads // PACK
    attention_kernel(q.dtype, D, BLOCK_M, BLOCK_N, PACK, stages, PINGPONG)(
        *(tensor.view(-1, M, D) for tensor in (q, k, v, o)), layout_crow, layout_col, layout_crow_stride,
        layout_col_stride, num_layout, num_heads, group, softmax_scale * LOG2_E, min(tiles, PROGRAMS),
    )  # fmt: skip
    return o


def _packs(case: Case) -> list[int]:
    """How many heads can be stacked."""
    return [1, 2] if case["num_layout"] == 1 and case["H"] // case["H_kv"] % 2 == 0 else [1]


def default(case: Case) -> Config:
    blocks = -(-case["M"] // case["block"]) * case["B"] * case["H"]
    # As long as each of 132 multiprocessors has one tile at most, more of them are faster than larger ones.
    pack = 2 if blocks > 132 and 2 in _packs(case) else 1
    return {"PACK": pack, "stages": 4, "PINGPONG": pack == 2, "PROGRAMS": 132}


def space(case: Case) -> list[Config]:
    return [
        {"PACK": pack, "stages": stages, "PINGPONG": pingpong, "PROGRAMS": 132}
        for pack in _packs(case)
        for stages in (2, 3, 4)
        for pingpong in ((True, False) if pack == 2 else (False,))
    ]


def unsupported(case: Case, device: Device) -> str | None:
    if device.capability < (9, 0):
        return "written for the TMA of compute capability 9.0 and newer"
    return None


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
