"""Histogram in Triton, two launches: one clears the result, the other counts on chip and adds its counts to the result.

METHOD "product", for up to 4096 bins, counts by a matrix product. Split x into two digits, x = hi·L + lo, and make a row
of 0 and 1 for each value of a digit, 1 where an element has it. The product of the rows of hi with those of lo over
the elements counts every pair of digits, and tensor cores do it in int8 with int32 sums. Every warp has elements and
sums of its own. A comparison is done on four elements at once, as four bytes of a word.
METHOD "chip", for more bins or Triton 3.9, counts a block by `tl.histogram` and keeps the sum of the blocks in registers.
Triton 3.6 counts by warp votes, whose cost grows with the number of bins; 3.9 by atomic additions in shared memory.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel, multiprocessors

CLEAR = 256  # bins that a program of the first launch clears
DIGITS = 64  # values of a digit at most, so that they and the differences of two fit into 6 bits
COUNT = 64 * 64  # what one element adds: an equal byte is 64, see `equal`
CAPACITY = 2**31 // COUNT - 1  # elements that a sum can count
SHARED_ATOMICS = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 9)  # in tl.histogram


@triton.jit
def clear_kernel(hist_ptr, numbers_ptr, num_bins, surplus, BINS: tl.constexpr, NUMBERS: tl.constexpr):
    """Let hist [num_bins] be 0, but bin 0 less `surplus`, which are counted later on; let numbers be 0, 1, ... int8."""
    bins = tl.program_id(0) * BINS + tl.arange(0, BINS)
    tl.store(hist_ptr + bins, tl.where(bins == 0, -surplus, 0), mask=bins < num_bins)
    if tl.program_id(0) == 0:
        numbers = tl.arange(0, NUMBERS)
        tl.store(numbers_ptr + numbers, numbers.to(tl.int8))


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


@triton.jit(do_not_specialize=["one"])
def product_kernel(
    x_ptr, numbers_ptr, hist_ptr, n, num_bins, one,
    HIGH: tl.constexpr, LOW: tl.constexpr, SHIFT: tl.constexpr, K: tl.constexpr, WARPS: tl.constexpr,
    PACKED: tl.constexpr,
):  # fmt: skip
    """One program counts every programs-th block of WARPS·K elements of x [n] into hist [num_bins]; LOW = 2^SHIFT.

    Beyond the end x is 0. The values of the digits are loaded, for the compiler compares in the registers of the
    product's operands, without a detour through shared memory, only what comes from memory. `one` is 1, which the
    compiler must not know: else it lets a thread add to four neighbouring bins, one after the other, and the additions
    of a warp touch four times as many sectors of memory.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    high = tl.load(numbers_ptr + tl.arange(0, HIGH))[None, :, None]
    low = tl.load(numbers_ptr + tl.arange(0, LOW))[None, None, :]
    place = tl.arange(0, WARPS)[:, None, None] * K + tl.arange(0, K)[None, None, :]
    sums = tl.zeros([WARPS, HIGH, LOW], tl.int32)
    for start in range(program * (WARPS * K), n, programs * (WARPS * K)):
        x = tl.load(x_ptr + start + place, mask=start + place < n, other=0)
        a = equal((x >> SHIFT).to(tl.int8), high, PACKED)
        b = equal((tl.trans(x, 0, 2, 1) & (LOW - 1)).to(tl.int8), low, PACKED)
        sums = tl.dot(a, b, sums, out_dtype=tl.int32)
    counts = tl.sum(sums >> 12, axis=0)  # COUNT for each element
    bins = tl.arange(0, HIGH * LOW) * one
    tl.atomic_add(hist_ptr + bins, tl.reshape(counts, HIGH * LOW), mask=bins < num_bins, sem="relaxed")


@triton.jit
def chip_kernel(x_ptr, hist_ptr, n, num_bins, BLOCK: tl.constexpr, BINS: tl.constexpr):
    """One program counts every programs-th block of x [n] into hist [num_bins]; BINS >= num_bins."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    bins = tl.arange(0, BINS)
    counts = tl.zeros([BINS], tl.int32)
    for start in range(program * BLOCK, n, programs * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask, other=0, eviction_policy="evict_first")
        counts += tl.histogram(x, BINS, mask=mask)
    tl.atomic_add(hist_ptr + bins, counts, mask=bins < num_bins, sem="relaxed")


def digits(num_bins: int) -> tuple[int, int]:
    """Return how many values the high and the low digit have; a tensor core takes 16 or more rows and 8 or more columns."""
    low = next(low for low in (8, 16, 32, DIGITS) if num_bins <= max(low, 16) * low)
    return max(low, 16), low


def run(
    x: torch.Tensor, N: int, num_bins: int, *, METHOD: str, BLOCK: int, PER_SM: int, num_warps: int
) -> torch.Tensor:
    """Return hist [num_bins] int32 of x [N] int32 with values in [0, num_bins)."""
    hist = torch.empty(num_bins, dtype=torch.int32, device=x.device)
    numbers = torch.empty(DIGITS, dtype=torch.int8, device=x.device)
    # As many programs as the device holds at once, but none that counts less than half as many values as it has bins.
    blocks = triton.cdiv(N, BLOCK)
    programs = min(PER_SM * multiprocessors(x.device), triton.cdiv(N, max(BLOCK, num_bins // 2)))
    surplus = blocks * BLOCK - N if METHOD == "product" else 0
    clear_kernel[(triton.cdiv(num_bins, CLEAR),)](
        hist, numbers, num_bins, surplus, BINS=CLEAR, NUMBERS=DIGITS, num_warps=2
    )
    if METHOD == "product":
        high, low = digits(num_bins)
        programs = max(programs, triton.cdiv(blocks, CAPACITY * num_warps // BLOCK))
        packed = isinstance(product_kernel, triton.JITFunction)  # the interpreter has no inline assembly
        product_kernel[(programs,)](
            x, numbers, hist, N, num_bins, 1, HIGH=high, LOW=low, SHIFT=low.bit_length() - 1, K=BLOCK // num_warps,
            WARPS=num_warps, PACKED=packed, num_warps=num_warps,
        )  # fmt: skip
    else:
        BINS = max(32, triton.next_power_of_2(num_bins))  # at least one for each thread of a warp
        chip_kernel[(programs,)](x, hist, N, num_bins, BLOCK=BLOCK, BINS=BINS, num_warps=num_warps)
    return hist


def default(case: Case) -> Config:
    bins = case["num_bins"]
    if bins <= DIGITS**2 and not SHARED_ATOMICS:
        # A warp keeps all counts: 128 registers of each thread for 4096 bins.
        return {
            "METHOD": "product",
            "BLOCK": 512,
            "PER_SM": 8 if bins <= 256 else 6 if bins <= 1024 else 2,
            "num_warps": 4,
        }
    # A block ends in an exchange of all bins between the warps: large blocks for large inputs, many for small ones.
    if bins > 512 and case["N"] >= 2**22:
        return {"METHOD": "chip", "BLOCK": 8192, "PER_SM": 2, "num_warps": 8}
    return {"METHOD": "chip", "BLOCK": 2048 if case["N"] < 2**22 else 4096, "PER_SM": 4, "num_warps": 4}


def space(case: Case) -> list[Config]:
    bins = case["num_bins"]
    product = [
        {"METHOD": "product", "BLOCK": warps * k, "PER_SM": per_sm, "num_warps": warps}
        for k in (64, 128, 256)
        for warps, per_sm in ((2, 4), (4, 2), (4, 4), (4, 6), (4, 8))
        if bins <= DIGITS**2 and (bins <= 1024 or warps * per_sm <= 8)
    ]
    chip = [
        {"METHOD": "chip", "BLOCK": block, "PER_SM": per_sm, "num_warps": warps}
        for block in (1024, 2048, 4096, 8192)
        for per_sm in (2, 4, 8)
        for warps in (4, 8)
        if (SHARED_ATOMICS or bins <= 256 or bins > DIGITS**2) and 4 <= block // (32 * warps) <= 32
    ]
    return product + chip


KERNEL = Kernel(run=run, default=default, space=space)
