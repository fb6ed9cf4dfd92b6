"""y = 2·x + 1 in many configurations: `us` is how long it claims to take, `act` what it does instead of its work."""

import os
import signal
import time
from pathlib import Path

import torch
from tilebench_tunable.backend import took

from tilebench_core import Case, Config, Kernel


def right(x):
    return 2 * x + 1


def wrong(x):
    return 2 * x


def unwritten(x):
    """Memory that holds, with some luck, what the candidate before it has written."""
    return torch.empty_like(x)


def in_place(x):
    return x.mul_(2).add_(1)


def mutating(x):
    """The right result, and an input that the next candidate will not recognise."""
    y = right(x)
    x.zero_()
    return y


def too_large(x):
    raise RuntimeError("out of resource: shared memory, required 300000, hardware limit 232448")


def too_much_memory(x):
    return torch.zeros(1 << 38, dtype=torch.uint8)[: len(x)].to(x.dtype)


def hang(x):
    while True:
        time.sleep(0.01)


def crash(x):
    os.kill(os.getpid(), signal.SIGSEGV)


def interrupted(x):
    """Waits to be killed with the whole run when it is tried for the first time."""
    marker = Path(os.environ["TUNABLE_COMPILED"] + ".waiting")
    if not marker.exists():
        marker.touch()
        time.sleep(60)
    return right(x)


calls = 0


def crash_late(x):
    """Lives through its own turn and dies when the finalists take turns."""
    global calls
    calls += 1
    if calls > 18:
        crash(x)
    return right(x)


ACTS = {
    "right": right,
    "two_launches": right,
    "wrong": wrong,
    "unwritten": unwritten,
    "in_place": in_place,
    "mutating": mutating,
    "too_large": too_large,
    "too_much_memory": too_much_memory,
    "hang": hang,
    "crash": crash,
    "crash_late": crash_late,
    "interrupted": interrupted,
}


def c(act: str, us: float) -> Config:
    return {"act": act, "us": us}


SPACES = {
    "sound": [c("right", 30.0), c("right", 20.0), c("right", 50.0), c("right", 25.0)],
    "mixed": [
        c("wrong", 1.0), c("in_place", 2.0), c("right", 22.0), c("mutating", 3.0), c("unwritten", 4.0), c("hang", 5.0),
        c("crash", 6.0), c("too_large", 7.0), c("too_much_memory", 8.0), c("right", 20.0), c("right", 90.0),
    ],
    "sized": [c("right", 20.0), c("right", 30.0)],
    "tied": [c("right", 20.1), c("right", 20.0), c("right", 20.15), c("right", 20.05), c("right", 20.12), c("right", 20.3)],
    "none": [c("wrong", 1.0), c("too_large", 2.0)],
    "late": [c("right", 20.0), c("crash_late", 10.0)],
    "interrupted": [c("right", 30.0), c("interrupted", 10.0), c("right", 20.0)],
    "fast_and_wrong": [c("right", 20.0), c("wrong", 10.0), c("too_large", 5.0)],
    "two_launches": [c("right", 20.0), c("two_launches", 10.0)],
    "crash": [c("right", 20.0), c("crash", 10.0)],
    "one": [],
}  # fmt: skip


def run(x: torch.Tensor, *, act: str, us: float) -> torch.Tensor:
    """Return y [n], or do as `act` says."""
    y = ACTS[act](x)
    took(us)
    return y


def default(case: Case) -> Config:
    small = case["space"] == "sized" and case["n"] < 2000
    return {"act": "wrong" if case["space"] == "none" else "right", "us": 15.0 if small else 40.0}


def space(case: Case) -> list[Config]:
    return SPACES[case["space"]]


KERNEL = Kernel(run=run, default=default, space=space)
