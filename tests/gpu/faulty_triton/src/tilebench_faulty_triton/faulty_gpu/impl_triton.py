"""What a Triton kernel can do to itself, to the memory around it and to the device. FAULTS maps a name to x -> y.

`name@run` strikes in the first run after the compilation; it is right before.
"""

from collections import Counter

import torch
import triton
import triton.language as tl

from tilebench_core import Case, Config, Kernel

BLOCK = 1024
calls = Counter()
kept = {}  # what a well-behaved kernel does not have


@triton.jit
def affine_kernel(x_ptr, y_ptr, n, limit, BLOCK: tl.constexpr):
    """x and y are [n]; elements from `limit` on are not written."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, 2 * x + 1, mask=mask & (offsets < limit))


@triton.jit
def far_store_kernel(y_ptr, distance, BLOCK: tl.constexpr):
    """Writes `distance` elements behind the start of y."""
    offsets = tl.arange(0, BLOCK).to(tl.int64) + distance
    tl.store(y_ptr + offsets, tl.zeros([BLOCK], tl.float32))


@triton.jit
def illegal_load_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    """Reads from an address that nobody owns."""
    nowhere = (x_ptr.to(tl.int64) * 0 + 4096).to(tl.pointer_type(tl.float32))
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(nowhere + offsets))


@triton.jit
def endless_kernel(x_ptr, y_ptr):
    """Waits for a value that never comes."""
    count = 0
    while tl.load(x_ptr, volatile=True) < 1e30:
        count += 1
    tl.store(y_ptr, count)


@triton.jit
def late_kernel(x_ptr, y_ptr, n, rounds, BLOCK: tl.constexpr):
    """Right, after a wait that the compiler cannot remove."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    waited = x * 0
    for _ in range(rounds):
        waited += tl.load(x_ptr + offsets, mask=mask, volatile=True) * 0
    tl.store(y_ptr + offsets, 2 * x + 1 + waited, mask=mask)


@triton.jit
def race_kernel(x_ptr, y_ptr, n, SHARE: tl.constexpr, BLOCK: tl.constexpr):
    """SHARE programs add to each element of y [n] without atomics: y = y + (2·x + 1) / SHARE."""
    offsets = (tl.program_id(0) // SHARE) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask, volatile=True)
    tl.store(y_ptr + offsets, y + (2 * x + 1) / SHARE, mask=mask)


def affine(x, limit=None):
    y = torch.empty_like(x)
    n = x.numel()
    affine_kernel[(triton.cdiv(n, BLOCK),)](x, y, n, n if limit is None else limit, BLOCK=BLOCK)
    return y


def late(x):
    y = torch.empty_like(x)
    late_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), 20_000, BLOCK=BLOCK)
    return y


def last(x):
    y = affine(x)
    y[-1:].zero_()
    return y


def nan(x):
    y = affine(x)
    y[:1].fill_(float("nan"))
    return y


def tail(x):
    """torch.empty, and a kernel that forgets the last elements."""
    return affine(x, x.numel() - 16)


def out_of_bounds(x):
    y = affine(x)
    far_store_kernel[(1,)](y, 1 << 40, BLOCK=BLOCK)
    return y


def illegal_address(x):
    y = affine(x)
    illegal_load_kernel[(1,)](x, y, BLOCK=BLOCK)
    return y


def endless(x):
    y = affine(x)
    endless_kernel[(1,)](x, y)
    return y


def side_stream(x):
    """Works on a stream of its own that nobody waits for."""
    if "stream" not in kept:
        kept["stream"] = torch.cuda.Stream()
    with torch.cuda.stream(kept["stream"]):
        return late(x)


def race(x):
    y = torch.zeros_like(x)
    race_kernel[(triton.cdiv(x.numel(), BLOCK) * 64,)](x, y, x.numel(), SHARE=64, BLOCK=BLOCK)
    return y


def mutating(x):
    y = affine(x)
    x.zero_()
    return y


def aliasing(x):
    return x.mul_(2).add_(1)


def stale(x):
    """The operand is copied when it is first seen."""
    if "operand" not in kept:
        kept["operand"] = x.clone()
    return affine(kept["operand"])


def cached_by_pointer(x):
    if x.data_ptr() not in kept:
        kept[x.data_ptr()] = affine(x)
    return kept[x.data_ptr()].clone()


def reused(x):
    y = kept.setdefault("buffer", torch.empty_like(x))
    affine_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), x.numel(), BLOCK=BLOCK)
    return y


def computed_on_the_host(x):
    """Leaves no work on the device's stream when it is replayed, since it only copies what it computed before."""
    return (2 * x.cpu() + 1).to(x.device)


def too_much_memory(x):
    return torch.empty(1 << 42, dtype=torch.uint8, device=x.device)[: x.numel()].to(x.dtype)


def too_much_shared_memory(x):
    y = torch.empty_like(x)
    affine_kernel[(triton.cdiv(x.numel(), 1 << 22),)](x, y, x.numel(), x.numel(), BLOCK=1 << 22)
    return y


FAULTS = {
    "right": affine,
    "late": late,
    "last": last,
    "nan": nan,
    "tail": tail,
    "out_of_bounds": out_of_bounds,
    "illegal_address": illegal_address,
    "endless": endless,
    "side_stream": side_stream,
    "race": race,
    "mutating": mutating,
    "aliasing": aliasing,
    "stale": stale,
    "cached_by_pointer": cached_by_pointer,
    "reused": reused,
    "host": computed_on_the_host,
    "memory": too_much_memory,
    "too_large_a_tile": too_much_shared_memory,
}


def run(x: torch.Tensor, *, fault: str) -> torch.Tensor:
    """Return y [n], or misbehave."""
    if calls[fault] == 0:
        kept.clear()
    calls[fault] += 1
    name, _, phase = fault.partition("@")
    return affine(x) if phase == "run" and calls[fault] == 1 else FAULTS[name](x)


def default(case: Case) -> Config:
    return {"fault": case["fault"]}


KERNEL = Kernel(run=run, default=default)
