"""Configurations of the flat elementwise kernels: one program computes one block of consecutive elements.

Such a kernel runs at the memory's speed if enough bytes are in flight: every thread should load whole 16-byte vectors,
and two per operand rather than one, so that fewer programs have to be launched. The block is therefore counted in
bytes; a block of int8 has four times the elements of a block of fp32.
"""

from tilebench_core import Case, Config

WARP_THREADS = 32


def _config(case: Case, bytes_per_thread: int, num_warps: int) -> Config:
    return {"BLOCK": num_warps * WARP_THREADS * bytes_per_thread // case.dtype_size, "num_warps": num_warps}


def triton_default(case: Case) -> Config:
    """Two 16-byte vectors per thread and operand, 128 threads: 1024 fp32, 2048 fp16 or 4096 int8 elements."""
    return _config(case, bytes_per_thread=32, num_warps=4)


def triton_space(case: Case) -> list[Config]:
    """One, two or four 16-byte vectors per thread and operand, 64 to 512 threads."""
    return [_config(case, size, warps) for size in (16, 32, 64) for warps in (2, 4, 8, 16)]


def cutile_default(case: Case) -> Config:
    """Two 16-byte vectors per thread and operand; cuTile gives a block 128 threads."""
    return {"TILE": 4096 // case.dtype_size}


def cutile_space(case: Case) -> list[Config]:
    """One to eight 16-byte vectors per thread and operand."""
    return [{"TILE": size // case.dtype_size} for size in (2048, 4096, 8192, 16384)]
