"""Block-sparse causal attention in TileLang: persistent blocks, each of which walks the lists of many row blocks.

A tile is one row block of PACK heads that share keys, values and lists; each head's rows belong to one warp group, which
keeps them in registers. Lists are short, so most of a tile's time would be the way to its first key block: its list's
range, an entry, the block that it names. One more warp group therefore reads the lists and loads by TMA, and runs ahead
into the next tile while the others still compute. A block's tiles are neighbours, whose lists name mostly the same
blocks: the loader keeps the last `stages` key and value blocks and loads only what is not among them, a third for a
window of three. It tells the others where each step's blocks lie.

A step multiplies q by the next keys first and the *previous* weights by their values next, so that the tensor cores
work on the second product while the softmax of the new scores runs. The products are issued without waiting
(T.wgmma_gemm), which leaves waits and barriers to this file. GPUs without WGMMA run the kernel of _general.py, which takes
one head at a time.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Device, Kernel
from tilelang.layout import make_wgmma_swizzled_layout

from tilebench_operators._tilelang_matmul import LOADER_REGISTERS, LOADER_THREADS, worker_registers
from tilebench_operators._tilelang_wgmma import has_wgmma
from tilebench_operators.block_sparse_attention import _general

LOG2_E = 1.4426950408889634
QUEUE = 8  # steps that the loader may be ahead
HALF = 64  # columns: 128 bytes, the width of a swizzled tile in shared memory
FULL_ROW = T.GemmWarpPolicy.FullRow  # a warp group has whole rows, so that their maximum needs no other

# TileLang has no prefetch to the L2 cache. Rows have a multiple of 16 bytes, and start at one: TMA demands that as well.
PRELUDE = """static __device__ __forceinline__ void prefetch_rows(const void* rows, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(rows)), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void prefetch_line(const void* line) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(line)) : "memory");
}
"""


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
    members = tuple(range(groups))
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
        share: T.int32,
        rest: T.int32,
    ):
        with T.Kernel(programs, threads=workers + LOADER_THREADS, prelude=PRELUDE) as program:
            thread = T.get_thread_binding()
            T.assume(num_layout > 0)
            T.assume(heads > 0)
            T.assume(group > 0)
            q_tile = T.alloc_shared((2, ROWS, D), dtype)
            k_tile = T.alloc_shared((stages, BLOCK_N, D), dtype)
            v_tile = T.alloc_shared((stages, BLOCK_N, D), dtype)
            o_tile = T.alloc_shared((ROWS, D), dtype)
            T.annotate_layout({q_tile: make_wgmma_swizzled_layout(q_tile)})
            # What the loader tells the others: how many steps a tile has; where a step's blocks lie, and its mask.
            steps = T.alloc_shared((2,), T.int32, scope="shared")
            places = T.alloc_shared((QUEUE,), T.int32, scope="shared")
            offsets = T.alloc_shared((QUEUE,), T.int32, scope="shared")
            q_full = T.alloc_barrier([LOADER_THREADS] * 2)
            q_free = T.alloc_barrier([workers] * 2)
            k_full = T.alloc_barrier([LOADER_THREADS] * QUEUE)
            v_full = T.alloc_barrier([LOADER_THREADS] * QUEUE)
            done = T.alloc_barrier([workers] * QUEUE)
            # Variables: expressions would be computed again at every use.
            turns, row, head = T.alloc_var(T.int32), T.alloc_var(T.int32), T.alloc_var(T.int32)
            kv_head, step, slot = T.alloc_var(T.int32), T.alloc_var(T.int32), T.alloc_var(T.int32)
            row_blocks = T.ceildiv(M, BLOCK_M)
            # Each program has a run of `share` tiles, and the first `rest` programs one more.
            turns = share + T.if_then_else(program < rest, 1, 0)
            row = share * program + T.min(program, rest)
            head = row // row_blocks
            row = row - head * row_blocks
            head = head * pack
            kv_head = head // group
            step = 0

            with T.ws(groups):
                T.dec_max_nreg(LOADER_REGISTERS)
                tags = T.alloc_local((stages,), T.int32)  # the key block that a slot holds
                used = T.alloc_local((stages,), T.int32)  # the last step that uses it
                layout = T.alloc_var(T.int32)
                start, length, n = T.alloc_var(T.int32), T.alloc_var(T.int32), T.alloc_var(T.int32)
                last_use, held = T.alloc_var(T.int32), T.alloc_var(T.int32)
                for s in T.unroll(stages):
                    tags[s] = -1
                    used[s] = -QUEUE
                layout = 0
                if num_layout > 1:
                    layout = head % heads % num_layout
                for turn in T.serial(turns):
                    T.mbarrier_wait_parity(q_free[turn % 2], turn // 2 % 2 ^ 1)
                    for i, half in T.grid(pack, D // HALF):
                        T.tma_copy(
                            q[head + i, row * BLOCK_M, half * HALF],
                            q_tile[turn % 2, i * BLOCK_M : (i + 1) * BLOCK_M, half * HALF : (half + 1) * HALF],
                            barrier=q_full[turn % 2],
                        )
                    start = crow[layout * crow_stride + row]
                    length = crow[layout * crow_stride + row + 1] - start
                    start = start + layout * col_stride
                    steps[turn % 2] = T.max(length, 1)
                    T.mbarrier_arrive(q_full[turn % 2])
                    # An empty list is walked as one diagonal block, of which the mask hides everything.
                    for entry in T.serial(T.max(length, 1)):
                        n = T.if_then_else(length > 0, col[start + entry], row)
                        slot = 0
                        last_use = used[0]
                        held = 0
                        for s in T.unroll(1, stages):
                            if used[s] < last_use:
                                slot = s
                                last_use = used[s]
                        for s in T.unroll(stages):
                            if tags[s] == n:
                                slot = s
                                held = 1
                        T.mbarrier_wait_parity(done[step % QUEUE], step // QUEUE % 2 ^ 1)
                        places[step % QUEUE] = slot
                        offsets[step % QUEUE] = T.if_then_else(length > 0, (row - n) * BLOCK_M, -ROWS)
                        if held == 0:
                            # Never the step before, which is done only after this one's keys are there.
                            if last_use > step - QUEUE:
                                T.mbarrier_wait_parity(done[last_use % QUEUE], last_use // QUEUE % 2)
                            T.tma_copy(k[kv_head, n * BLOCK_N, 0], k_tile[slot, :, :], barrier=k_full[step % QUEUE])
                            T.tma_copy(v[kv_head, n * BLOCK_N, 0], v_tile[slot, :, :], barrier=v_full[step % QUEUE])
                        T.mbarrier_arrive(k_full[step % QUEUE])
                        T.mbarrier_arrive(v_full[step % QUEUE])
                        for s in T.unroll(stages):
                            if slot == s:
                                tags[s] = n
                                used[s] = step
                        step = step + 1
                    row = row + 1
                    if row == row_blocks:
                        row = 0
                        head = head + pack
                        kv_head = head // group
                        if num_layout > 1:
                            layout = head % heads % num_layout
                        for s in T.unroll(stages):
                            tags[s] = -1

            with T.ws(*range(groups)):
                T.inc_max_nreg(registers)
                q_part = T.alloc_fragment((ROWS, D), dtype)
                scores = T.alloc_fragment((ROWS, BLOCK_N), T.float32)
                p = T.alloc_fragment((ROWS, BLOCK_N), dtype)
                result = T.alloc_fragment((ROWS, D), T.float32)
                maximum = T.alloc_fragment((ROWS,), T.float32)
                previous = T.alloc_fragment((ROWS,), T.float32)
                shrink = T.alloc_fragment((ROWS,), T.float32)
                part = T.alloc_fragment((ROWS,), T.float32)
                total = T.alloc_fragment((ROWS,), T.float32)
                before, more = T.alloc_var(T.int32), T.alloc_var(T.int32)
                offset = T.alloc_var(T.int32)
                before = 0
                if thread == 0:
                    # While the loader waits for the lists: the nearest keys, which are seldom left out. If every tile has a
                    # program of its own, these share the blocks among themselves; the start of the lists, they always do.
                    begin, end = T.alloc_var(T.int32), T.alloc_var(T.int32)
                    begin = T.max(row - (stages - 2), 0) * BLOCK_N
                    end = row * BLOCK_N + BLOCK_N
                    if share == 1 and rest == 0:
                        begin = row * BLOCK_N + head % group // pack * T.ceildiv(pack * BLOCK_N, group)
                        end = begin + T.ceildiv(pack * BLOCK_N, group)
                    end = T.min(end, M)
                    if begin < end:
                        T.call_extern(
                            "void", "prefetch_rows", T.address_of(k[kv_head, begin, 0]), (end - begin) * (D * 2)
                        )
                        T.call_extern(
                            "void", "prefetch_rows", T.address_of(v[kv_head, begin, 0]), (end - begin) * (D * 2)
                        )
                    if program * 32 < col_size:
                        T.call_extern("void", "prefetch_line", T.address_of(col[program * 32]))
                for turn in T.serial(turns):
                    T.clear(result)
                    T.clear(total)
                    T.fill(maximum, -1.0e30)  # finite, so that a row without keys yields no inf - inf
                    T.mbarrier_wait_parity(q_full[turn % 2], turn // 2 % 2)
                    more = steps[turn % 2]
                    T.copy(q_tile[turn % 2, :, :], q_part)
                    T.mbarrier_wait_parity(k_full[step % QUEUE], step // QUEUE % 2)
                    slot = places[step % QUEUE]
                    offset = offsets[step % QUEUE]
                    T.wgmma_gemm(
                        q_part, k_tile[slot, :, :], scores, transpose_B=True, clear_accum=True, policy=FULL_ROW
                    )
                    T.wait_wgmma(0)
                    T.mbarrier_arrive(q_free[turn % 2])
                    softmax(scores, offset, scale, maximum, previous, shrink, part, total)
                    T.copy(scores, p)
                    for _ in T.serial(1, more):
                        before = slot
                        T.mbarrier_wait_parity(k_full[(step + 1) % QUEUE], (step + 1) // QUEUE % 2)
                        slot = places[(step + 1) % QUEUE]
                        offset = offsets[(step + 1) % QUEUE]
                        T.wgmma_gemm(
                            q_part, k_tile[slot, :, :], scores, transpose_B=True, clear_accum=True, policy=FULL_ROW
                        )
                        for i, j in T.Parallel(ROWS, D):
                            result[i, j] *= shrink[i]
                        T.mbarrier_wait_parity(v_full[step % QUEUE], step // QUEUE % 2)
                        T.wgmma_gemm(p, v_tile[before, :, :], result, policy=FULL_ROW)
                        T.wait_wgmma(1)  # the scores
                        softmax(scores, offset, scale, maximum, previous, shrink, part, total)
                        # This wait is over. But it is a loop, over which the assembler moves nothing: otherwise it would
                        # move the exponentials behind the wait for the product during which they are to be taken.
                        T.mbarrier_wait_parity(v_full[step % QUEUE], step // QUEUE % 2)
                        T.wait_wgmma(0)
                        T.mbarrier_arrive(done[step % QUEUE])
                        step = step + 1
                        T.copy(scores, p)
                    for i, j in T.Parallel(ROWS, D):
                        result[i, j] *= shrink[i]
                    T.mbarrier_wait_parity(v_full[step % QUEUE], step // QUEUE % 2)
                    T.wgmma_gemm(p, v_tile[slot, :, :], result, policy=FULL_ROW)
                    T.wait_wgmma(0)
                    T.mbarrier_arrive(done[step % QUEUE])
                    step = step + 1
                    for i, j in T.Parallel(ROWS, D):
                        result[i, j] *= 1 / T.if_then_else(total[i] > 0, total[i], 1.0)
                    T.tma_store_wait(0)  # until the last tile's result has left shared memory
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
                    row = row + 1
                    if row == row_blocks:
                        row = 0
                        head = head + pack
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
    programs = min(tiles, PROGRAMS)
    attention_kernel(q.dtype, D, BLOCK_M, BLOCK_N, PACK, stages)(
        *(tensor.view(-1, M, D) for tensor in (q, k, v, o)), layout_crow, layout_col, layout_crow_stride,
        layout_col_stride, num_layout, num_heads, group, softmax_scale * LOG2_E, programs, *divmod(tiles, programs),
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
