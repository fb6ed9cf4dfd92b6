"""Rowwise dequantisation in TileLang: a block of threads takes a tile of a few rows and reads one scale for each.

A vector is eight elements: 16 bytes of the fp16 output, which is two thirds of the traffic, in one store.
"""

import tilelang
import tilelang.language as T
import torch
from tilebench_core import Case, Config, Kernel

VECTOR = 8


# As seen in the generated code: where an address takes bits of the thread's index apart, as that of a tile of several
# rows does, nvcc splits 16-byte stores into 4-byte ones. This setting makes every wide access one instruction.
@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_ENABLE_LOWER_LDGSTG: True})
def dequantize_kernel(ROWS: int, BLOCK: int, VEC: int, threads: int):
    """One block, a tile of ROWS rows and BLOCK columns: x, y [rows, cols], state [rows]. VEC divides cols."""
    rows, cols = T.dynamic("rows"), T.dynamic("cols")

    @T.prim_func
    def dequantize(
        x: T.Tensor((rows, cols), T.int8), state: T.Tensor((rows,), T.float32), y: T.Tensor((rows, cols), T.float16)
    ):
        with T.Kernel(T.ceildiv(cols, BLOCK), T.ceildiv(rows, ROWS), threads=threads) as (column, row):
            T.assume(cols % VEC == 0)  # so that every row starts at a multiple of VEC, and accesses are VEC wide
            values = T.alloc_fragment((ROWS, BLOCK), T.int8)
            scales = T.alloc_fragment((ROWS,), T.float32)
            top, left = row * ROWS, column * BLOCK
            # All loads stand before the stores, so that they are in flight together.
            for i, j in T.Parallel(ROWS, BLOCK):
                if top + i < rows and left + j < cols:
                    values[i, j] = x[top + i, left + j]
            for i in T.Parallel(ROWS):
                if top + i < rows:
                    scales[i] = state[top + i]
            for i, j in T.Parallel(ROWS, BLOCK):
                if top + i < rows and left + j < cols:
                    y[top + i, left + j] = T.cast(scales[i] * T.cast(values[i, j], T.float32) * (1 / 127), T.float16)

    return dequantize


def run(x: torch.Tensor, state_x: torch.Tensor, *, ROWS: int, BLOCK: int, threads: int) -> torch.Tensor:
    """Return y [rows, cols], fp16, of x [rows, cols], int8, and state_x [rows], fp32."""
    y = torch.empty_like(x, dtype=torch.float16)
    VEC = VECTOR if x.shape[1] % VECTOR == 0 else 1
    dequantize_kernel(ROWS, BLOCK, VEC, threads)(x, state_x, y)
    return y


def default(case: Case) -> Config:
    # 4096 elements: a thread of 256 gets two vectors. A chunk of 1024 columns, or the whole row if it is shorter.
    block = min(1024, max(64, 1 << (case["cols"] - 1).bit_length()))
    return {"ROWS": 4096 // block, "BLOCK": block, "threads": 256}


def space(case: Case) -> list[Config]:
    return [
        {"ROWS": elements // block, "BLOCK": block, "threads": threads}
        for block in (256, 512, 1024)
        for elements in (1024, 2048, 4096, 8192)
        for threads in (64, 128, 256, 512)
        if VECTOR * threads <= elements <= 4 * VECTOR * threads
    ]


KERNEL = Kernel(run=run, default=default, space=space)
