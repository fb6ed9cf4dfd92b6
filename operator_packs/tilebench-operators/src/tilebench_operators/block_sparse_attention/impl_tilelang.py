"""Block-sparse causal attention in TileLang: persistent blocks, each of which walks the lists of many row blocks.

A tile is one row block of PACK heads that share keys, values and lists; each head's rows belong to one warp group. Lists
are short, so most of a tile's time would be the way to its first key block: its list's range, an entry, the block that
it names. One more warp group therefore only loads, by TMA into rings of `stages` key and value blocks, and runs ahead
into the lists of the next tile while the others still compute.

A step multiplies q by the next keys first and the *previous* weights by their values next, so that the tensor cores
work on the second product while the softmax of the new scores runs. The products are issued without waiting
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
def attention_kernel(dtype: torch.dtype, D: int, BLOCK_M: int, BLOCK_N: int, pack: int, stages: int):
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
    registers = worker_registers(workers, 1)

    @T.macro
    def softmax(scores, offset, scale, maximum, previous, shrink, part, total):
        """One step of the online softmax: scores become weights. `scale` holds log2 e.

        Row i of a head sees the block's keys j <= i + offset. Left of the diagonal the mask hides nothing; but a branch
        while a product is in flight would have the assembler wait after each of its instructions.
        """
        for i, j in T.Parallel(ROWS, BLOCK_N):
            scores[i, j] = T.if_then_else(i % BLOCK_M + offset >= j, scores[i, j], -T.infinity(T.float32))
        T.copy(maximum, previous)
        T.reduce_max(scores, maximum, dim=1, clear=False)
        for i in T.Parallel(ROWS):
            shrink[i] = T.exp2((previous[i] - maximum[i]) * scale)
        for i, j in T.Parallel(ROWS, BLOCK_N):
            scores[i, j] = T.exp2(scores[i, j] * scale - maximum[i] * scale)
        T.reduce_sum(scores, part, dim=1)
        for i in T.Parallel(ROWS):
            total[i] = total[i] * shrink[i] + part[i]

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
            # Variables: expressions would be computed again at every use.
            row, head, layout = T.alloc_var(T.int32), T.alloc_var(T.int32), T.alloc_var(T.int32)
            start, length, turns = T.alloc_var(T.int32), T.alloc_var(T.int32), T.alloc_var(T.int32)
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
                    T.mbarrier_arrive(q_full[turn % 2])
                    # An empty list is walked as one diagonal block, of which the mask hides everything.
                    for entry in T.serial(T.max(length, 1)):
                        n = T.if_then_else(length > 0, col[start + entry], row) * BLOCK_N
                        T.mbarrier_wait_parity(k_free[slot], phase ^ 1)
                        T.tma_copy(k[head // group, n, 0], k_tile[slot, :, :], barrier=k_full[slot])
                        T.mbarrier_arrive(k_full[slot])
                        T.mbarrier_wait_parity(v_free[slot], phase ^ 1)
                        T.tma_copy(v[head // group, n, 0], v_tile[slot, :, :], barrier=v_full[slot])
                        T.mbarrier_arrive(v_full[slot])
                        slot = slot + 1
                        if slot == stages:
                            slot = 0
                            phase = phase ^ 1

            with T.ws(*range(groups)):
                T.inc_max_nreg(registers)
                scores = T.alloc_fragment((ROWS, BLOCK_N), T.float32)
                p = T.alloc_fragment((ROWS, BLOCK_N), dtype)
                result = T.alloc_fragment((ROWS, D), T.float32)
                maximum = T.alloc_fragment((ROWS,), T.float32)
                previous = T.alloc_fragment((ROWS,), T.float32)
                shrink = T.alloc_fragment((ROWS,), T.float32)
                part = T.alloc_fragment((ROWS,), T.float32)
                total = T.alloc_fragment((ROWS,), T.float32)
                for turn in T.serial(turns):
                    head = (program + turn * programs) // row_blocks
                    row = program + turn * programs - head * row_blocks
                    head = head * pack
                    layout = head % heads % num_layout
                    start = crow[layout * crow_stride + row]
                    length = crow[layout * crow_stride + row + 1] - start
                    start = start + layout * col_stride
                    T.clear(result)
                    T.clear(total)
                    T.fill(maximum, -1.0e30)  # finite, so that a row without keys yields no inf - inf
                    T.mbarrier_wait_parity(q_full[turn % 2], turn // 2 % 2)
                    T.mbarrier_wait_parity(k_full[slot], phase)
                    T.wgmma_gemm(
                        q_tile[turn % 2, :, :], k_tile[slot, :, :], scores,
                        transpose_B=True, clear_accum=True, policy=FULL_ROW,
                    )  # fmt: skip
                    offset = T.if_then_else(length > 0, (row - col[start]) * BLOCK_M, -ROWS)
                    T.wait_wgmma(0)
                    T.mbarrier_arrive(k_free[slot])
                    softmax(scores, offset, scale, maximum, previous, shrink, part, total)
                    T.copy(scores, p)
                    for entry in T.serial(1, length):
                        before = slot
                        phase_before = phase
                        slot = slot + 1
                        if slot == stages:
                            slot = 0
                            phase = phase ^ 1
                        offset = (row - col[start + entry]) * BLOCK_M
                        T.mbarrier_wait_parity(k_full[slot], phase)
                        T.wgmma_gemm(
                            q_tile[turn % 2, :, :], k_tile[slot, :, :], scores,
                            transpose_B=True, clear_accum=True, policy=FULL_ROW,
                        )  # fmt: skip
                        for i, j in T.Parallel(ROWS, D):
                            result[i, j] *= shrink[i]
                        T.mbarrier_wait_parity(v_full[before], phase_before)
                        T.wgmma_gemm(p, v_tile[before, :, :], result, policy=FULL_ROW)
                        T.wait_wgmma(1)  # the scores
                        T.mbarrier_arrive(k_free[slot])
                        softmax(scores, offset, scale, maximum, previous, shrink, part, total)
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
                    T.wait_wgmma(0)
                    T.mbarrier_arrive(v_free[slot])
                    slot = slot + 1
                    if slot == stages:
                        slot = 0
                        phase = phase ^ 1
                    for i, j in T.Parallel(ROWS, D):
                        result[i, j] *= 1 / T.if_then_else(total[i] > 0, total[i], 1.0)
                    T.tma_store_wait(0)  # until the last tile's result has left shared memory
                    T.sync_threads(1, workers)
                    T.copy(result, o_tile)
                    T.fence_proxy_async()
                    T.sync_threads(1, workers)
                    for i, half in T.grid(pack, D // HALF):
                        T.tma_copy(
                            o_tile[i * BLOCK_M : (i + 1) * BLOCK_M, half * HALF : (half + 1) * HALF],
                            o[head + i, row * BLOCK_M, half * HALF],
                        )
                T.tma_store_wait(0)

    return block_sparse_attention


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout_crow: torch.Tensor, layout_col: torch.Tensor,
    layout_crow_stride: int, layout_col_stride: int, num_layout: int, softmax_scale: float, num_heads: int,
    num_kv_heads: int, M: int, BLOCK_M: int, EVEN_M: bool, BLOCK_N: int, EVEN_N: bool, BLOCK_D: int,
    NUM_D_BLOCKS: int, *, PACK: int, stages: int, PROGRAMS: int,
) -> torch.Tensor:  # fmt: skip
    """Return o [B, H, M, D]; q [B, H, M, D], k and v [B, H_kv, M, D]."""
    group = num_heads // num_kv_heads
    if PACK > 1 and (num_layout > 1 or group % PACK):
        raise ValueError(f"{PACK} heads do not share their keys and lists")
    o = torch.empty_like(q)
    D = BLOCK_D * NUM_D_BLOCKS
    tiles = -(-M // BLOCK_M) * q.shape[0] * num_heads // PACK
    attention_kernel(q.dtype, D, BLOCK_M, BLOCK_N, PACK, stages)(
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
    return {"PACK": pack, "stages": 4, "PROGRAMS": 132}


def space(case: Case) -> list[Config]:
    return [{"PACK": pack, "stages": stages, "PROGRAMS": 132} for pack in _packs(case) for stages in (2, 3, 4)]


def unsupported(case: Case, device: Device) -> str | None:
    if device.capability < (9, 0):
        return "written for the TMA of compute capability 9.0 and newer"
    return None


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
