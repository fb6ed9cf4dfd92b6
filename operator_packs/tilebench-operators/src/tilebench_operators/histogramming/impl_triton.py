"""Histogram in Triton, two launches: every program counts into a histogram of its own, then these are added up.

METHOD "chip" counts a block by `tl.histogram` and keeps the sum of the blocks in registers. Triton 3.6 counts by warp
votes, whose cost grows with the number of bins; 3.9 by atomic additions in shared memory, whose cost does not.
METHOD "global" is for many bins by the older way: atomic additions to the program's own row in global memory, which
the L2 cache holds. The row belongs into shared memory, but Triton's language has no atomics there.
METHOD "mixed" has so many values for the older way that two units are to share them, for up to 4096 bins. Most of a
block goes to the tensor cores, while the L2 cache adds for the rest. Split x into two digits, x = hi·L + lo, and make a
row of 0 and 1 for each value of a digit, 1 where an element has it. The product of the rows of hi with those of lo over
the elements counts every pair of digits, in int8 with int32 sums. Every warp has elements and sums of its own. A
comparison is done on four elements at once, as four bytes of a word.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel, multiprocessors

SUM_BINS = 16  # 64 bytes of each private histogram; narrow, so that even 64 bins are several programs
SUM_ROWS = 256
DIGITS = 64  # values of a digit at most, so that they and the differences of two fit into 6 bits
COUNT = 64 * 64  # what one element adds to a product, see `equal`
CAPACITY = 2**31 // COUNT - 1  # elements that a sum of products can count
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
def equal(a, b, PACKED: tl.constexpr):
    """64 where a and b, int8 in [0, 64), are equal, else 0."""
    if PACKED:
        # The exclusive or of two bytes is less than 64, so no byte borrows from its neighbour, and 64 stays if it is 0.
        return tl.inline_asm_elementwise(
            "{.reg .b32 t; xor.b32 t, $1, $2; sub.u32 t, 0x40404040, t; and.b32 $0, t, 0x40404040;}",
            "=r,r,r",
            [a, b],
            dtype=tl.int8,
            is_pure=True,
            pack=4,
        )
    return tl.where(a == b, 64, 0).to(tl.int8)


@triton.jit
def mixed_kernel(
    x_ptr, numbers_ptr, private_ptr, n, num_bins,
    HIGH: tl.constexpr, LOW: tl.constexpr, SHIFT: tl.constexpr, K: tl.constexpr, WARPS: tl.constexpr, ADDED: tl.constexpr,
    PACKED: tl.constexpr,
):  # fmt: skip
    """One program counts every programs-th block of WARPS·K + ADDED elements of x [n], ADDED of them by atomic additions.

    private is [programs, 2, HIGH·LOW], LOW = 2^SHIFT: a row for the additions and one for the products, which count 0
    beyond the end of x. numbers [programs, HIGH] gets the values of a digit, 0, 1, ...: only what is loaded, the compiler
    compares in the registers of the product's operands, without a detour through shared memory.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    private_ptr += program * (2 * HIGH * LOW)
    bins = tl.arange(0, HIGH * LOW)
    tl.store(private_ptr + bins, tl.zeros([HIGH * LOW], tl.int32))
    numbers_ptr += program * HIGH
    tl.store(numbers_ptr + tl.arange(0, HIGH), tl.arange(0, HIGH).to(tl.int8))
    tl.debug_barrier()  # other threads of this program add to what this thread has set to zero, and load its numbers
    high = tl.load(numbers_ptr + tl.arange(0, HIGH))[None, :, None]
    low = tl.load(numbers_ptr + tl.arange(0, LOW))[None, None, :]
    place = tl.arange(0, WARPS)[:, None, None] * K + tl.arange(0, K)[None, None, :]
    sums = tl.zeros([WARPS, HIGH, LOW], tl.int32)
    step = programs * (WARPS * K + ADDED)
    others = program * (WARPS * K + ADDED) + WARPS * K + tl.arange(0, ADDED)
    following = tl.load(x_ptr + others, mask=others < n, other=0, eviction_policy="evict_first")
    for start in range(program * (WARPS * K + ADDED), n, step):
        x = tl.load(x_ptr + start + place, mask=start + place < n, other=0)
        tl.atomic_add(private_ptr + following, 1, mask=others < n, sem="relaxed")
        # The next values are on their way while this block is counted.
        others += step
        following = tl.load(x_ptr + others, mask=others < n, other=0, eviction_policy="evict_first")
        a = equal((x >> SHIFT).to(tl.int8), high, PACKED)
        b = equal((tl.trans(x, 0, 2, 1) & (LOW - 1)).to(tl.int8), low, PACKED)
        sums = tl.dot(a, b, sums, out_dtype=tl.int32)
    counts = tl.sum(sums >> 12, axis=0)  # COUNT for each element
    places = tl.arange(0, HIGH)[:, None] * LOW + tl.arange(0, LOW)[None, :]
    tl.store(private_ptr + HIGH * LOW + places, counts)


@triton.jit
def sum_kernel(private_ptr, hist_ptr, programs, num_bins, stride, surplus, ROWS: tl.constexpr, BINS: tl.constexpr):
    """One program adds BINS columns of private [programs, stride] into hist [num_bins]; bin 0 has `surplus` too many."""
    bins = tl.program_id(0) * BINS + tl.arange(0, BINS)
    sums = tl.zeros([ROWS, BINS], tl.int32)
    for first in range(0, programs, ROWS):
        rows = first + tl.arange(0, ROWS)[:, None]
        mask = (rows < programs) & (bins[None, :] < num_bins)
        sums += tl.load(private_ptr + rows * stride + bins[None, :], mask=mask, other=0)
    tl.store(hist_ptr + bins, tl.sum(sums, axis=0) - tl.where(bins == 0, surplus, 0), mask=bins < num_bins)


def digits(num_bins: int) -> tuple[int, int]:
    """Return how many values the high and the low digit have; a tensor core takes 16 or more rows and 8 or more columns."""
    low = next(low for low in (8, 16, 32, DIGITS) if num_bins <= max(low, 16) * low)
    return max(low, 16), low


def run(
    x: torch.Tensor, N: int, num_bins: int, *, METHOD: str, BLOCK: int, ADDED: int, PER_SM: int, num_warps: int
) -> torch.Tensor:
    """Return hist [num_bins] int32 of x [N] int32 with values in [0, num_bins)."""
    # As many programs as the device holds at once, but none that counts fewer values than it has bins.
    blocks = triton.cdiv(N, BLOCK + ADDED)
    programs = min(PER_SM * multiprocessors(x.device), triton.cdiv(N, max(BLOCK + ADDED, num_bins)))
    hist = torch.empty(num_bins, dtype=torch.int32, device=x.device)
    rows, stride, surplus = programs, num_bins, 0
    if METHOD == "mixed":
        high, low = digits(num_bins)
        programs = max(programs, triton.cdiv(blocks, CAPACITY * num_warps // BLOCK))
        rows, stride = 2 * programs, high * low
        # In the last block, products take the first BLOCK places.
        surplus = max(0, blocks * (BLOCK + ADDED) - ADDED - N)
        private = torch.empty((rows, stride), dtype=torch.int32, device=x.device)
        numbers = torch.empty((programs, high), dtype=torch.int8, device=x.device)
        packed = isinstance(mixed_kernel, triton.JITFunction)  # the interpreter has no inline assembly
        mixed_kernel[(programs,)](
            x, numbers, private, N, num_bins, HIGH=high, LOW=low, SHIFT=low.bit_length() - 1, K=BLOCK // num_warps,
            WARPS=num_warps, ADDED=ADDED, PACKED=packed, num_warps=num_warps,
        )  # fmt: skip
    elif METHOD == "chip":
        private = torch.empty((programs, num_bins), dtype=torch.int32, device=x.device)
        BINS = max(32, triton.next_power_of_2(num_bins))  # at least one for each thread of a warp
        chip_kernel[(programs,)](x, private, N, num_bins, BLOCK=BLOCK, BINS=BINS, num_warps=num_warps)
    else:
        private = torch.empty((programs, num_bins), dtype=torch.int32, device=x.device)
        global_kernel[(programs,)](x, private, N, num_bins, BLOCK=BLOCK, BINS=1024, num_warps=num_warps)
    sum_kernel[(triton.cdiv(num_bins, SUM_BINS),)](
        private, hist, rows, num_bins, stride, surplus, ROWS=SUM_ROWS, BINS=SUM_BINS, num_warps=8
    )
    return hist


def default(case: Case) -> Config:
    bins, N = case["num_bins"], case["N"]
    if bins > 512 and not SHARED_ATOMICS:
        if bins > DIGITS**2 or N < 2**20 or (bins > 1024 and N <= 2**20):
            return {"METHOD": "global", "BLOCK": 2048, "ADDED": 0, "PER_SM": 2, "num_warps": 8}
        # The share of the additions is chosen so that both take equally long. A warp keeps all counts of its products:
        # 128 registers of each thread for 4096 bins.
        if bins <= 1024:
            return {"METHOD": "mixed", "BLOCK": 512, "ADDED": 256, "PER_SM": 2 if N < 2**22 else 5, "num_warps": 4}
        return {"METHOD": "mixed", "BLOCK": 512, "ADDED": 512, "PER_SM": 2, "num_warps": 4}
    # A block ends in an exchange of all bins between the warps: large blocks for large inputs, many for small ones.
    if N >= 2**22:
        block, per_sm, warps = 8192, 2 if bins > 512 else 4 if N < 2**24 else 8, 8
    elif bins > 64:
        block, per_sm, warps = 2048, 4, 4
    else:
        block, per_sm, warps = 1024 if N < 2**20 else 2048, 8, 8
    return {"METHOD": "chip", "BLOCK": block, "ADDED": 0, "PER_SM": per_sm, "num_warps": warps}


def space(case: Case) -> list[Config]:
    bins = case["num_bins"]
    chip = [
        {"METHOD": "chip", "BLOCK": block, "ADDED": 0, "PER_SM": per_sm, "num_warps": warps}
        for block in (1024, 2048, 4096, 8192)
        for per_sm in (2, 4, 8)
        for warps in (4, 8)
        if (SHARED_ATOMICS or bins <= 256) and 4 <= block // (32 * warps) <= 32
    ]
    in_global = [
        {"METHOD": "global", "BLOCK": block, "ADDED": 0, "PER_SM": per_sm, "num_warps": 8}
        for block in (1024, 2048)
        for per_sm in (1, 2, 4)
        if bins > 256
    ]
    mixed = [
        {"METHOD": "mixed", "BLOCK": block, "ADDED": added, "PER_SM": per_sm, "num_warps": 4}
        for block in (256, 512)
        for added in (128, 256, 512)
        for per_sm in (1, 2, 4, 5)
        if 256 <= bins <= DIGITS**2
        and not SHARED_ATOMICS
        and block // 4 <= added <= block
        and (bins <= 1024 or per_sm <= 2)
        and (per_sm > 1 or bins > 1024)
    ]
    return chip + in_global + mixed


KERNEL = Kernel(run=run, default=default, space=space)
