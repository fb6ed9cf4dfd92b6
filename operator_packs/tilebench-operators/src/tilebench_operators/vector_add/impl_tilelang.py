"""Vector addition in TileLang: one block of threads adds one block of elements."""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel


@tilelang.jit
def add_kernel(dtype: torch.dtype, BLOCK: int, threads: int):
    n = T.dynamic("n")
    # bf16 and fp16 are added in fp32 and rounded once, as PyTorch does.
    wide = T.float32 if dtype.is_floating_point else dtype

    @T.prim_func
    def add(x: T.Tensor((n,), dtype), y: T.Tensor((n,), dtype), z: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, BLOCK), threads=threads) as block:
            start = block * BLOCK
            # Only the last block tests its bounds: a test per element would keep the loads from being 16 bytes wide.
            if start + BLOCK <= n:
                for i in T.Parallel(BLOCK):
                    z[start + i] = T.cast(T.cast(x[start + i], wide) + T.cast(y[start + i], wide), dtype)
            else:
                for i in T.Parallel(BLOCK):
                    if start + i < n:
                        z[start + i] = T.cast(T.cast(x[start + i], wide) + T.cast(y[start + i], wide), dtype)

    return add


def run(x: torch.Tensor, y: torch.Tensor, *, BLOCK: int, threads: int) -> torch.Tensor:
    """Return z = x + y; x, y, z [n] of one dtype."""
    z = torch.empty_like(x)
    add_kernel(x.dtype, BLOCK, threads)(x, y, z)
    return z


def default(case: Case) -> Config:
    # 16 bytes per thread and load: a block of 128 threads holds 128 · 16 bytes of each operand.
    return {"BLOCK": max(1024, 2048 // case.dtype_size), "threads": 128}


def space(case: Case) -> list[Config]:
    return [{"BLOCK": block, "threads": threads} for block in (512, 1024, 2048, 4096) for threads in (64, 128, 256)]


KERNEL = Kernel(run=run, default=default, space=space)
