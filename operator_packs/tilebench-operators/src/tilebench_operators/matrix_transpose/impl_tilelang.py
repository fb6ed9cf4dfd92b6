"""Matrix transposition in TileLang: a tile is read along rows and written along columns, through shared memory.

Loads and stores both move 16 bytes per thread, so elements have to change threads on the way. One by one they would
collide in the banks of shared memory. Here a thread reads the same columns of VEC consecutive rows and turns this square
around in its registers; what goes through shared memory is whole vectors of the result.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel


# As seen in the generated code: where an address takes bits of the thread's index apart, as that of a tile of several
# rows does, nvcc splits 16-byte stores into 4-byte ones. This setting makes every wide access one instruction.
@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_ENABLE_LOWER_LDGSTG: True})
def transpose_kernel(dtype: torch.dtype, TILE_M: int, TILE_N: int, VEC: int, threads: int):
    """One tile of x [m, n] to out [n, m]; VEC divides m and n."""
    m, n = T.dynamic("m"), T.dynamic("n")
    DOWN, ACROSS = TILE_M // VEC, TILE_N // VEC  # squares of VEC × VEC in a tile

    @T.prim_func
    def transpose(x: T.Tensor((m, n), dtype), out: T.Tensor((n, m), dtype)):
        # Neighbouring blocks share the rows of out: their writes complete each other's DRAM pages.
        with T.Kernel(T.ceildiv(m, TILE_M), T.ceildiv(n, TILE_N), threads=threads) as (bm, bn):
            T.assume(m % VEC == 0)
            T.assume(n % VEC == 0)
            turned = T.alloc_shared((TILE_N, TILE_M), dtype)
            for i, j in T.Parallel(DOWN, ACROSS):
                square = T.alloc_local((VEC, VEC), dtype)
                column = T.alloc_local((VEC,), dtype)
                if bm * TILE_M + i * VEC < m and bn * TILE_N + j * VEC < n:
                    for r in T.unroll(VEC):
                        for c in T.vectorized(VEC):
                            square[r, c] = x[bm * TILE_M + i * VEC + r, bn * TILE_N + j * VEC + c]
                for c in T.unroll(VEC):
                    for r in T.unroll(VEC):
                        column[r] = square[r, c]
                    for r in T.vectorized(VEC):
                        # Neighbouring threads write rows that lie VEC apart, to the same banks; so vector i stands at
                        # place i ^ j of its row.
                        turned[j * VEC + c, (i ^ (j % DOWN)) * VEC + r] = column[r]
            for c, i in T.Parallel(TILE_N, DOWN):
                if bn * TILE_N + c < n and bm * TILE_M + i * VEC < m:
                    for r in T.vectorized(VEC):
                        out[bn * TILE_N + c, bm * TILE_M + i * VEC + r] = turned[c, (i ^ (c // VEC % DOWN)) * VEC + r]

    return transpose


def run(x: torch.Tensor, *, TILE_M: int, TILE_N: int, threads: int) -> torch.Tensor:
    """Return x [m, n] transposed, contiguous [n, m]."""
    m, n = x.shape
    out = torch.empty((n, m), dtype=x.dtype, device=x.device)
    VEC = 16 // x.element_size()
    if m % VEC or n % VEC:
        VEC = 1  # rows that do not keep 16-byte vectors aligned
    transpose_kernel(x.dtype, TILE_M, TILE_N, VEC, threads)(x, out)
    return out


def _config(case: Case, tile_m: int, tile_n: int, loads: int) -> Config:
    """`loads` 16-byte loads per thread, a whole square or several."""
    return {"TILE_M": tile_m, "TILE_N": tile_n, "threads": tile_m * tile_n * case.dtype_size // 16 // loads}


def default(case: Case) -> Config:
    # Rows of at least 128 bytes on both sides, and one square per thread.
    tile_m, tile_n = {1: (128, 256), 2: (64, 128), 4: (64, 64)}[case.dtype_size]
    return _config(case, tile_m, tile_n, 16 // case.dtype_size)


def space(case: Case) -> list[Config]:
    tiles = [(32, 64), (64, 32), (64, 64), (64, 128), (128, 64), (128, 128)]
    tiles += [(128, 256), (256, 128), (256, 256)] if case.dtype_size == 1 else []
    square = 16 // case.dtype_size
    configs = [_config(case, *tile, loads) for tile in tiles for loads in (square, 2 * square)]
    return [c for c in configs if 32 <= c["threads"] <= 512]


KERNEL = Kernel(run=run, default=default, space=space)
