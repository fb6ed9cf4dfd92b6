"""int8 times 2-bit matrix multiplication in TileLang: unpack w once, then an int8 product by TMA and WGMMA.

Hopper's int8 tensor cores read w from shared memory only with k innermost, while the packed matrix has n innermost.
Unpacking inside the product would therefore shuffle every byte of w once per tile row (16 times for 2048 rows); here
one small kernel unpacks and transposes into w [N, K] int8, inside the call, which mostly stays in the L2 cache. It
transposes in registers, and also brings the columns of a with which the product begins to the L2 cache. The product starts
while that kernel still runs (programmatic dependent launch), and waits before it loads.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Device, Kernel

from tilebench_operators._tilelang_dependent import dependent_launches
from tilebench_operators._tilelang_order import tile_of

PRELUDE = """static __device__ __forceinline__ void prefetch(const void* from, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}
static __device__ __forceinline__ void store_words(int* to, const uint* from) {
  __stcg(reinterpret_cast<uint4*>(to), make_uint4(from[0], from[1], from[2], from[3]));
}
"""
ROWS, COLUMNS = 16, 4  # of the packed matrix, that a thread of `unpack_kernel` turns around
AHEAD = 1024  # columns of a that it brings to the L2 cache


@tilelang.jit
def unpack_kernel(S_LANES: int, threads: int):
    """w[q, 4n + i, s] = field i of column 4q + n of packed[s], minus 1; packed [S, 16, Q] words, w [Q, 16, S, 4] words.

    A thread turns 16 rows of 4 columns, a word of each row, around in its registers: 16 bytes of every field of 4 rows of w.
    S_LANES threads of a warp write side by side, and 32 / S_LANES read side by side: whole sectors of 32 bytes with
    S_LANES from 2 to 4. A thread's loads are all under way at once.
    """
    S, Q, M, K = T.dynamic("S"), T.dynamic("Q"), T.dynamic("M"), T.dynamic("K")
    Q_LANES = threads // S_LANES
    early = dependent_launches()

    @T.prim_func
    def unpack(
        packed: T.Tensor((S, ROWS, Q), T.int32),
        w: T.Tensor((Q, 4 * COLUMNS, S, 4), T.int32),
        a: T.Tensor((M, K), T.int8),
    ):
        with T.Kernel(T.ceildiv(S, S_LANES), T.ceildiv(Q, Q_LANES), threads=threads, prelude=PRELUDE) as (bs, bq):
            if early:
                T.pdl_trigger()
            rows = T.alloc_local((ROWS,), T.uint32)
            pairs = T.alloc_local((4,), T.uint32)
            columns = T.alloc_local((COLUMNS * 4,), T.uint32)
            numbers = T.alloc_local((4,), T.uint32)
            tid = T.get_thread_binding()
            s = bs * S_LANES + tid % S_LANES
            q = bq * Q_LANES + tid // S_LANES
            inside = (s < S) & (q < Q)
            if inside:
                for r in T.unroll(ROWS):
                    rows[r] = T.cast(packed[s, r, q], T.uint32)
            row = (tid * T.ceildiv(Q, Q_LANES) + bq) * T.ceildiv(S, S_LANES) + bs
            if row < M:
                T.call_extern("void", "prefetch", T.address_of(a[row, 0]), T.min(K, AHEAD))
            if inside:
                for j in T.unroll(4):
                    # 4 × 4 bytes turn around: those of two rows alternate, then pairs of them do.
                    for r in T.unroll(2):
                        x, y = rows[4 * j + 2 * r], rows[4 * j + 2 * r + 1]
                        pairs[r] = T.call_extern(T.uint32, "__byte_perm", x, y, 0x5140)
                        pairs[2 + r] = T.call_extern(T.uint32, "__byte_perm", x, y, 0x7362)
                    for h in T.unroll(2):
                        x, y = pairs[2 * h], pairs[2 * h + 1]
                        columns[8 * h + j] = T.call_extern(T.uint32, "__byte_perm", x, y, 0x5410)
                        columns[8 * h + 4 + j] = T.call_extern(T.uint32, "__byte_perm", x, y, 0x7632)
                for n in T.unroll(COLUMNS):
                    for i in T.unroll(4):
                        for j in T.unroll(4):
                            # Per byte: 0..3 plus 127 sets the top bit unless it was 0; flipped, that is the number minus 1.
                            field = (columns[4 * n + j] >> (2 * i)) & T.uint32(0x03030303)
                            numbers[j] = (field + T.uint32(0x7F7F7F7F)) ^ T.uint32(0x80808080)
                        T.call_extern(
                            "void", "store_words", T.address_of(w[q, 4 * n + i, s, 0]), T.address_of(numbers[0])
                        )

    return unpack


@tilelang.jit
def unpack_bytes_kernel(TILE: int, threads: int):
    """The same byte by byte, for any size: w[n, i, j] = ((packed[j, n] >> 2i) & 3) - 1; packed [QUARTER, N] uint8,
    w [N, 4, QUARTER] int8. A tile turns around in shared memory."""
    QUARTER, N = T.dynamic("QUARTER"), T.dynamic("N")

    @T.prim_func
    def unpack_bytes(packed: T.Tensor((QUARTER, N), T.uint8), w: T.Tensor((N, 4, QUARTER), T.int8)):
        with T.Kernel(T.ceildiv(QUARTER, TILE), T.ceildiv(N, TILE), threads=threads) as (bj, bn):
            tile = T.alloc_shared((TILE, TILE + 4), T.uint8)  # padded: fewer words of a column share a bank
            for j, n in T.Parallel(TILE, TILE):
                if bj * TILE + j < QUARTER and bn * TILE + n < N:
                    tile[j, n] = packed[bj * TILE + j, bn * TILE + n]
            for n, j in T.Parallel(TILE, TILE):
                if bn * TILE + n < N and bj * TILE + j < QUARTER:
                    for i in T.unroll(4):
                        field = (T.cast(tile[j, n], T.int32) >> (2 * i)) & 3
                        w[bn * TILE + n, i, bj * TILE + j] = T.cast(field - 1, T.int8)

    return unpack_bytes


@tilelang.jit
def matmul_kernel(BM: int, BN: int, BK: int, stages: int, threads: int):
    """c = a·wᵀ; a [M, K] int8, w [N, K] int8, c [M, N] int32. Loads beyond the edge give zeros."""
    M, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")
    early = dependent_launches()

    @T.prim_func
    def matmul_int8(
        a: T.Tensor((M, K), T.int8), w: T.Tensor((N, K), T.int8), c: T.Tensor((M, N), T.int32), group: T.int32
    ):
        with T.Kernel(T.ceildiv(M, BM) * T.ceildiv(N, BN), threads=threads) as block:
            T.assume(group > 0)
            T.assume(M > 0)
            T.assume(N > 0)
            bm, bn = tile_of(block, T.ceildiv(M, BM), T.ceildiv(N, BN), group)
            a_tile = T.alloc_shared((BM, BK), T.int8)
            w_tile = T.alloc_shared((BN, BK), T.int8)
            c_tile = T.alloc_shared((BM, BN), T.int32)
            total = T.alloc_fragment((BM, BN), T.int32)
            T.clear(total)
            if early:
                T.pdl_sync()
            for step in T.Pipelined(T.ceildiv(K, BK), num_stages=stages):
                T.copy(a[bm * BM, step * BK], a_tile)
                T.copy(w[bn * BN, step * BK], w_tile)
                # A warp group multiplies its rows by all BN columns at once, and so reads them from shared memory once.
                T.gemm(a_tile, w_tile, total, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            # Through shared memory, so that the tile leaves by TMA, which drops what lies outside.
            T.copy(total, c_tile)
            T.copy(c_tile, c[bm * BM, bn * BN])

    return matmul_int8


@tilelang.jit
def unaligned_kernel(BM: int, BN: int, BK: int, threads: int):
    """The same product for rows that TMA can't address: their pitch is no multiple of 16 bytes."""
    M, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")

    @T.prim_func
    def matmul_int8_unaligned(a: T.Tensor((M, K), T.int8), w: T.Tensor((N, K), T.int8), c: T.Tensor((M, N), T.int32)):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=threads) as (bn, bm):
            a_tile = T.alloc_shared((BM, BK), T.int8)
            w_tile = T.alloc_shared((BN, BK), T.int8)
            total = T.alloc_fragment((BM, BN), T.int32)
            T.clear(total)
            for step in T.serial(T.ceildiv(K, BK)):
                T.copy(a[bm * BM, step * BK], a_tile, disable_tma=True)
                T.copy(w[bn * BN, step * BK], w_tile, disable_tma=True)
                T.gemm(a_tile, w_tile, total, transpose_B=True)
            T.copy(total, c[bm * BM, bn * BN], disable_tma=True)

    return matmul_int8_unaligned


def run(
    a: torch.Tensor, packed: torch.Tensor, *, BM: int, BN: int, BK: int, GROUP: int, stages: int, threads: int
) -> torch.Tensor:
    """Return c [M, N] int32; a [M, K] int8, packed [K/4, N] uint8."""
    (M, K), N = a.shape, packed.shape[1]
    w = torch.empty([N, K], dtype=torch.int8, device=a.device)
    c = torch.empty([M, N], dtype=torch.int32, device=a.device)
    if K % 64 or N % COLUMNS:
        unpack_bytes_kernel(128, 256)(packed, w.view(N, 4, K // 4))
    else:
        S, Q = K // 64, N // COLUMNS
        unpack_kernel(4, 64)(packed.view(torch.int32).view(S, ROWS, Q), w.view(torch.int32).view(Q, 16, S, 4), a)
    if K % 16 or N % 4:
        unaligned_kernel(64, 64, 64, 128)(a, w, c)
    else:
        matmul_kernel(BM, BN, BK, stages, threads)(a, w, c, GROUP)
    return c


def _config(BM: int, BN: int, BK: int, stages: int, threads: int, GROUP: int = 8) -> Config:
    return {"BM": BM, "BN": BN, "BK": BK, "GROUP": GROUP, "stages": stages, "threads": threads}


def default(case: Case) -> Config:
    # 2048 × 2048 results are 128 tiles of 128 × 256: one for each of Hopper's 132 multiprocessors.
    return _config(128, 256, 128, 4, 256)


def space(case: Case) -> list[Config]:
    shapes = [
        (128, 128, 128, 4, 128), (128, 128, 128, 6, 256), (256, 128, 128, 4, 256), (128, 256, 128, 3, 256),
        (128, 256, 128, 4, 256), (128, 256, 64, 8, 256), (256, 128, 64, 8, 256), (128, 128, 256, 3, 256),
    ]  # fmt: skip
    return [_config(*shape, group) for shape in shapes for group in (4, 8, 16)]


def unsupported(case: Case, device: Device) -> str | None:
    if device.capability < (9, 0):
        return "TileLang 0.1.15 pipelines a loop of unknown length only where there is TMA (compute capability 9.0)"
    return None


KERNEL = Kernel(run=run, default=default, space=space, unsupported=unsupported)
