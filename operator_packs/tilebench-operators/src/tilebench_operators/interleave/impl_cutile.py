"""Interleaving in cuTile: both tiles are read, interleaved in registers and written as one tile of twice the length."""

import functools

import cuda.tile as ct
import torch
from tilebench_core import Case, Config, Kernel


@ct.kernel
def interleave_kernel(a, b, out, TILE: ct.Constant[int]):
    """Write 2·TILE elements of out [2n]. The last tile may reach beyond n: what is loaded there is never stored."""
    i = ct.bid(0)
    even = ct.load(a, (i,), (TILE,))
    odd = ct.load(b, (i,), (TILE,))
    ct.store(out, (i,), ct.cat((even[:, None], odd[:, None]), 1).reshape((2 * TILE,)))


@functools.cache
def hinted(warps: int) -> ct.kernel:
    """`interleave_kernel` for blocks of `warps` warps. A hinted kernel has compiled code of its own."""
    return interleave_kernel.replace_hints(num_worker_warps=warps)


def run(a: torch.Tensor, b: torch.Tensor, N: int, *, TILE: int, WARPS: int) -> torch.Tensor:
    """Return out [2N] from a [N] and b [N]."""
    out = torch.empty(2 * N, dtype=a.dtype, device=a.device)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(N, TILE),), hinted(WARPS), (a, b, out, TILE))
    return out


def default(case: Case) -> Config:
    # A thread of 256 reads 8 bytes of each input and writes 16. If it read more, elements would have to change threads.
    return {"TILE": 2048 // case.dtype_size, "WARPS": 8}


def space(case: Case) -> list[Config]:
    return [{"TILE": size // case.dtype_size, "WARPS": warps} for size in (1024, 2048, 4096, 8192) for warps in (4, 8)]


KERNEL = Kernel(run=run, default=default, space=space)
