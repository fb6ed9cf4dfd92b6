"""Configurations of the flat elementwise kernels in TileLang: one block of threads computes one block of elements.

The same reasoning as in `_elementwise.py`: every thread loads whole 16-byte vectors, and two per operand rather than
one. BLOCK is a multiple of the elements that the threads load at once, so that no thread is left without a vector.
"""

from tilebench_core import Case, Config


def _config(case: Case, bytes_per_thread: int, threads: int) -> Config:
    return {"BLOCK": threads * bytes_per_thread // case.dtype_size, "threads": threads}


def tilelang_default(case: Case) -> Config:
    """Two 16-byte vectors per thread and operand, 128 threads: 1024 fp32, 2048 fp16 or 4096 int8 elements."""
    return _config(case, bytes_per_thread=32, threads=128)


def tilelang_space(case: Case) -> list[Config]:
    """One, two or four 16-byte vectors per thread and operand, 64 to 512 threads."""
    return [_config(case, size, threads) for size in (16, 32, 64) for threads in (64, 128, 256, 512)]
