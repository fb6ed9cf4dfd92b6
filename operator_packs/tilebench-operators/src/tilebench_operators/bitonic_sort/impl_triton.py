"""Bitonic sort in Triton: the network in few passes over memory, every comparison between two registers of one thread.

Merge k joins a descending and an ascending run of 2^(k-1) elements by stages that compare partners at distance 2^(k-1), ...,
2, 1. The runs that it makes alternate in direction, the last one is ascending: so the padding above N, infinity, stays
where it is. A descending run is an ascending one of negated values.

- `sort_slices` runs merges 1 to SLICE on chip, a slice of 2^SLICE elements per program.
- `merge_tiles` runs as many stages as a tile of 2^SLICE elements allows: the last ones of one merge, which compare close
  neighbours, and the first ones of the next merge, which compare rows far apart. `plan` cuts the network into such passes.

A tile on chip is [32, columns] with whole columns per thread, so an exchange of two rows needs no other thread.
`rows_from` makes other bits of the index the row; the compiler then moves the elements between the threads, through
shared memory, once for five stages. Two neighbouring columns of fp16 are one register, which one instruction compares.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel

from tilebench_operators.bitonic_sort._plan import plan


@triton.jit
def exchange(x, BIT: tl.constexpr):
    """One stage on x [R, C]: rows that differ in bit BIT of their index are put in order."""
    R: tl.constexpr = x.shape[0]
    C: tl.constexpr = x.shape[1]
    paired = tl.permute(tl.reshape(x, [R >> (BIT + 1), 2, 1 << BIT, C]), [0, 2, 3, 1])
    a, b = tl.split(paired)
    ordered = tl.join(tl.minimum(a, b), tl.maximum(a, b))
    return tl.reshape(tl.permute(ordered, [0, 3, 1, 2]), [R, C])


@triton.jit
def exchange_all(x, FROM: tl.constexpr, TO: tl.constexpr):
    """The stages of row bits FROM - 1, ..., TO on x [R, C]."""
    for step in tl.static_range(FROM - TO):
        x = exchange(x, FROM - 1 - step)
    return x


@triton.jit
def rows_from(x, HIGH: tl.constexpr, LOW: tl.constexpr):
    """Regroup a slice: x [32, C] with index bits HIGH..HIGH+4 as its row, to index bits LOW..LOW+4 as its row.

    The column is made of the other bits, in their order.
    """
    C: tl.constexpr = x.shape[1]
    N: tl.constexpr = 32 * C
    flat = tl.reshape(tl.permute(tl.reshape(x, [32, N >> (HIGH + 5), 1 << HIGH]), [1, 0, 2]), [N])
    rows = tl.permute(tl.reshape(flat, [N >> (LOW + 5), 32, 1 << LOW]), [1, 0, 2])
    return tl.reshape(rows, [32, C])


@triton.jit
def merge_in_slice(x, K: tl.constexpr, SLICE: tl.constexpr):
    """The stages at distances 2^(K-1), ..., 1 on a slice whose row is index bits 0..4; 5 < K <= SLICE."""
    if K > 10:
        x = exchange_all(rows_from(x, 0, SLICE - 5), K - SLICE + 5, 15 - SLICE)
        x = rows_from(x, SLICE - 5, 5)
        x = exchange_all(x, 5, 0)
    else:
        x = exchange_all(rows_from(x, 0, 5), K - 5, 0)
    return exchange_all(rows_from(x, 5, 0), 5, 0)


@triton.jit
def sort_tile(x, SLICE: tl.constexpr):
    """Sort a slice: x [32, C] in any order, to index bits 0..4 as the row.

    Every second run is kept negated, not reversed. In fp32, or int32 without the least number.
    """
    C: tl.constexpr = x.shape[1]
    index = tl.arange(0, C)[None, :] * 32 + tl.arange(0, 32)[:, None]
    for k in tl.static_range(1, SLICE + 1):
        # The runs that merge k makes alternate in direction: bit k of the index, and after the last merge none.
        turned = (index >> (k - 1)) & 1 if k > 1 else 0
        turns = ((index >> k) & 1 if k < SLICE else 0) ^ turned
        x = tl.where(turns == 1, -x, x) if x.dtype.is_int() else x * (1 - 2 * turns).to(x.dtype)
        x = exchange_all(x, k, 0) if k <= 5 else merge_in_slice(x, k, SLICE)
    return x


@triton.jit
def sign_of(start, k, size):
    """-1 if the run of 2^k elements that holds place `start` is descending: an even one that is not the last. Else 1."""
    run = start >> k
    return tl.where((run % 2 == 0) & (((run + 1) << k) < size), -1.0, 1.0)


@triton.jit
def sort_slices(x_ptr, y_ptr, n, size, SLICE: tl.constexpr):
    """Sort every slice of x [n], continued with infinity, into y [size], a multiple of 2^SLICE; in fp32."""
    C: tl.constexpr = 1 << (SLICE - 5)
    start = tl.program_id(0) * (1 << SLICE)
    places = start + tl.arange(0, 32)[:, None] * C + tl.arange(0, C)[None, :]
    x = tl.load(x_ptr + places, mask=places < n, other=float("inf")).to(tl.float32)
    sign = sign_of(start, SLICE, size)
    x = rows_from(sort_tile(x * sign, SLICE), 0, SLICE - 5) * sign
    tl.store(y_ptr + places, x.to(y_ptr.dtype.element_ty))


@triton.jit
def tile_places(start, distance, HEAD: tl.constexpr, SLICE: tl.constexpr):
    """The places [32, C] in memory of a tile: its element t is element t % ROW of row t // ROW."""
    C: tl.constexpr = 1 << (SLICE - 5)
    ROW: tl.constexpr = 1 << (SLICE - HEAD)
    columns = tl.arange(0, C)[None, :]
    rows = tl.arange(0, 32)[:, None]
    if HEAD >= 5:
        places = (rows << (HEAD - 5)) * distance + (columns // ROW * distance + columns % ROW)
    else:
        places = (rows >> (5 - HEAD)) * distance + ((rows & ((1 << (5 - HEAD)) - 1)) * C + columns)
    return start + places


@triton.jit(do_not_specialize=["k"])
def merge_tiles(y_ptr, size, k, distance, TAIL: tl.constexpr, HEAD: tl.constexpr, SLICE: tl.constexpr):
    """One pass of `plan`, in place on y [size], with rows of 2^(SLICE - HEAD) elements, `distance` apart."""
    ROW: tl.constexpr = 1 << (SLICE - HEAD)
    per_group = distance // ROW  # tiles whose rows lie between each other
    start = tl.program_id(0) // per_group * (distance << HEAD) + tl.program_id(0) % per_group * ROW
    # A pass inside one merge has nothing to do where the second run is empty.
    needed = start if TAIL > 0 and HEAD > 0 else (start >> k << k) + (1 << (k - 1))
    if needed < size:
        places = tile_places(start, distance, HEAD, SLICE)
        x = tl.load(y_ptr + places, mask=places < size, other=float("inf"))
        sign = sign_of(start, k, size).to(x.dtype)

        if TAIL > 0:
            before = tl.full([32, 1], 1, x.dtype) * sign
            if HEAD > 0:
                # Two runs, of the merge before k; the upper one is ascending.
                lower = sign_of(start, k - 1, size).to(x.dtype)
                before = tl.where(tl.arange(0, 32)[:, None] < 16, lower, tl.full([32, 1], 1, x.dtype))
            x = x * before
            x = exchange_all(x, max(TAIL, SLICE - 5) - (SLICE - 5), 0)
            if TAIL > 5:
                x = exchange_all(rows_from(x, SLICE - 5, 5), min(TAIL, SLICE - 5) - 5, 0)
                x = rows_from(x, 5, 0)
            else:
                x = rows_from(x, SLICE - 5, 0)
            x = rows_from(exchange_all(x, min(TAIL, 5), 0), 0, SLICE - 5)
            x = x * before

        if HEAD > 0:
            x = exchange_all(x * sign, 5, max(HEAD, 5) - HEAD)
            if HEAD > 5:
                x = exchange_all(rows_from(x, SLICE - 5, SLICE - 10), 5, 10 - HEAD)
                x = rows_from(x, SLICE - 10, SLICE - 5)
            x = x * sign
        # Plus nothing: else the compiler keeps the addresses of the loads in registers.
        places = tile_places(start + (k >> 5), distance, HEAD, SLICE)
        tl.store(y_ptr + places, x, mask=places < size)


def run(data: torch.Tensor, N: int, *, SLICE: int, ROW: int, num_warps: int, maxnreg: int) -> torch.Tensor:
    """Return data [N] in ascending order: the first N elements of whole slices."""
    slices = triton.cdiv(N, 1 << SLICE)
    size = slices << SLICE
    y = torch.empty(size, dtype=data.dtype, device=data.device)
    sort_slices[(slices,)](data, y, N, size, SLICE=SLICE, num_warps=max(1, (1 << SLICE) // 1024), maxnreg=64)
    common = {"SLICE": SLICE, "num_warps": num_warps, "maxnreg": maxnreg}
    for k, tail, head, shift, _ in plan((N - 1).bit_length(), SLICE, ROW):
        tiles = triton.cdiv(size, 1 << (shift + head)) << (shift + head - SLICE)
        merge_tiles[(tiles,)](y, size, k, 1 << shift, TAIL=tail, HEAD=head, **common)
    return y[:N]


def default(case: Case) -> Config:
    # A larger slice saves passes over memory; a smaller one fills the SMs when the array is short, and leaves several to
    # each SM when it is long. At least 2^10.
    values = 2 if case.dtype == "fp16" else 1  # of a register; a thread holds 32 registers of the tile
    long = case["n"] > 1 << 20
    bits = 10 if case["n"] <= 1024 else 13 if long else 11 + values
    return config(bits, values, ROW=4 if long else 3 + values)


def config(bits: int, values: int, ROW: int) -> Config:
    """Slices of 2^bits elements, with as many registers per thread as keep the passes from spilling."""
    warps = max(1, (1 << bits) // (1024 * values))
    return {"SLICE": bits, "ROW": ROW, "num_warps": warps, "maxnreg": 80 if values == 2 else 64}


def space(case: Case) -> list[Config]:
    values = 2 if case.dtype == "fp16" else 1
    return [
        {**config(bits, values, ROW), "maxnreg": registers}
        for bits in (12, 13, 14, 15)
        if bits < 14 + values
        for ROW in (4, 5)
        for registers in (64, 80, 96)
        if registers > 64 or values == 1 or bits == 15
    ]


KERNEL = Kernel(run=run, default=default, space=space)
