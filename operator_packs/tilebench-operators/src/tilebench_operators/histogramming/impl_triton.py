"""Histogram in Triton, two launches: every program counts into a histogram of its own, then these are added up.

METHOD "chip" counts a block by `tl.histogram` and keeps the sum of the blocks in registers. Triton 3.6 counts by warp
votes, whose cost grows with the number of bins; 3.9 by atomic additions in shared memory, whose cost does not.
METHOD "global" is for many bins by the older way: atomic additions to the program's own row in global memory, which
the L2 cache holds. The row belongs into shared memory, but Triton's language has no atomics there.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel, multiprocessors

SUM_BINS = 16  # 64 bytes of each private histogram; narrow, so that even 64 bins are several programs
SUM_ROWS = 256
SHARED_ATOMICS = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 9)  # in tl.histogram


@triton.jit
def chip_kernel(x_ptr, private_ptr, n, num_bins, BLOCK: tl.constexpr, BINS: tl.constexpr):
    """One program counts every programs-th block of x [n]; private points to [programs, num_bins]; BINS >= num_bins."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    bins = tl.arange(0, BINS)
    counts = tl.zeros([BINS], tl.int32)
    for start in range(program * BLOCK, n, programs * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask, other=0, eviction_policy="evict_first")
        counts += tl.histogram(x, BINS, mask=mask)
    tl.store(private_ptr + program * num_bins + bins, counts, mask=bins < num_bins)


@triton.jit
def global_kernel(x_ptr, private_ptr, n, num_bins, BLOCK: tl.constexpr, BINS: tl.constexpr):
    """As `chip_kernel`, with the counts in private [programs, num_bins] from the start."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    private_ptr += program * num_bins
    for first in range(0, num_bins, BINS):
        bins = first + tl.arange(0, BINS)
        tl.store(private_ptr + bins, tl.zeros([BINS], tl.int32), mask=bins < num_bins)
    tl.debug_barrier()  # other threads of this program add to what this thread has set to zero
    for start in range(program * BLOCK, n, programs * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask, other=0, eviction_policy="evict_first")
        tl.atomic_add(private_ptr + x, 1, mask=mask, sem="relaxed")


@triton.jit
def sum_kernel(private_ptr, hist_ptr, programs, num_bins, ROWS: tl.constexpr, BINS: tl.constexpr):
    """One program adds BINS columns of private [programs, num_bins] into hist [num_bins]."""
    bins = tl.program_id(0) * BINS + tl.arange(0, BINS)
    sums = tl.zeros([ROWS, BINS], tl.int32)
    for first in range(0, programs, ROWS):
        rows = first + tl.arange(0, ROWS)[:, None]
        mask = (rows < programs) & (bins[None, :] < num_bins)
        sums += tl.load(private_ptr + rows * num_bins + bins[None, :], mask=mask, other=0)
    tl.store(hist_ptr + bins, tl.sum(sums, axis=0), mask=bins < num_bins)


def run(
    x: torch.Tensor, N: int, num_bins: int, *, METHOD: str, BLOCK: int, PER_SM: int, num_warps: int
) -> torch.Tensor:
    """Return hist [num_bins] int32 of x [N] int32 with values in [0, num_bins)."""
    # As many programs as the device holds at once, but none that counts fewer values than it has bins.
    programs = min(PER_SM * multiprocessors(x.device), triton.cdiv(N, max(BLOCK, num_bins)))
    private = torch.empty((programs, num_bins), dtype=torch.int32, device=x.device)
    hist = torch.empty(num_bins, dtype=torch.int32, device=x.device)
    if METHOD == "chip":
        BINS = max(32, triton.next_power_of_2(num_bins))  # at least one for each thread of a warp
        chip_kernel[(programs,)](x, private, N, num_bins, BLOCK=BLOCK, BINS=BINS, num_warps=num_warps)
    else:
        global_kernel[(programs,)](x, private, N, num_bins, BLOCK=BLOCK, BINS=1024, num_warps=num_warps)
    sum_kernel[(triton.cdiv(num_bins, SUM_BINS),)](
        private, hist, programs, num_bins, ROWS=SUM_ROWS, BINS=SUM_BINS, num_warps=8
    )
    return hist


def default(case: Case) -> Config:
    if case["num_bins"] > 512 and not SHARED_ATOMICS:
        return {"METHOD": "global", "BLOCK": 2048, "PER_SM": 2, "num_warps": 8}
    # A block ends in an exchange of all bins between the warps: large blocks for large inputs, many for small ones.
    if case["num_bins"] > 512 and case["N"] >= 2**22:
        return {"METHOD": "chip", "BLOCK": 8192, "PER_SM": 2, "num_warps": 8}
    return {"METHOD": "chip", "BLOCK": 2048 if case["N"] < 2**22 else 4096, "PER_SM": 4, "num_warps": 4}


def space(case: Case) -> list[Config]:
    chip = [
        {"METHOD": "chip", "BLOCK": block, "PER_SM": per_sm, "num_warps": warps}
        for block in (1024, 2048, 4096, 8192)
        for per_sm in (2, 4, 8)
        for warps in (4, 8)
        if (SHARED_ATOMICS or case["num_bins"] <= 1024) and 4 <= block // (32 * warps) <= 32
    ]
    in_global = [
        {"METHOD": "global", "BLOCK": block, "PER_SM": per_sm, "num_warps": 8}
        for block in (1024, 2048, 4096)
        for per_sm in (1, 2, 4)
        if case["num_bins"] >= 256
    ]
    return chip + in_global


KERNEL = Kernel(run=run, default=default, space=space)
