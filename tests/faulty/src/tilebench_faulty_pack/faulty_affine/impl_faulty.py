"""Every way in which a kernel has been seen, or feared, to misbehave. FAULTS maps its name to a function x [n] -> y [n].

A name may say in which phase it strikes: `hang@compile`, `exit@run`, `signal@time`; it is right in the others.
"""

import os
import signal
import subprocess
import sys
import time

import torch
from tilebench_faulty import phases
from tilebench_faulty.backend import NotCompilable

from tilebench_core import Case, Config, Device, Kernel

kept = {}  # what a well-behaved kernel does not have


def right(x):
    return 2 * x + 1


def last(x):
    """A tile at the edge that was forgotten."""
    y = right(x)
    y[-1] = 0
    return y


def off_by_a_little(x):
    """A result in lower precision than it claims."""
    return right(x.bfloat16()).to(x.dtype)


def nan(x):
    y = right(x)
    y[len(y) // 2] = float("nan")
    return y


def infinite(x):
    y = right(x)
    y[3] = float("inf")
    return y


def tail(x):
    """The last elements are never written: what was in the memory before stays there."""
    y = torch.empty_like(x)
    y[:-16] = right(x)[:-16]
    return y


def aliasing(x):
    """In place: the result is right and the input is gone."""
    return x.mul_(2).add_(1)


def aliasing_a_view(x):
    """Returns memory of its input's storage, bent so that it looks like another tensor."""
    return x.mul_(2).add_(1).view(1, -1)[0]


def mutating(x):
    """Right, but it leaves its input changed."""
    y = right(x)
    x.zero_()
    return y


def mutating_and_restoring_one(x):
    """Uses its input as scratch memory and forgets to restore the last element."""
    y, before = right(x), x[-1].clone()
    x.zero_()
    x.copy_((y - 1) / 2)
    x[-1] = before + 1
    return y


def cached(key):
    """A cache of results under `key(x)`."""

    def run(x):
        if (key, key(x)) not in kept:
            kept[key, key(x)] = right(x)
        return kept[key, key(x)].clone()

    return run


def by_object(x):
    return id(x)


def by_pointer(x):
    return x.data_ptr()


def by_some_values(x):
    """Nobody looks at every element to see whether an input is new; here the shape alone stands for it."""
    return tuple(x.shape)


def stale(x):
    """The operand is copied when it is first seen (for a layout, say) and the copy is used from then on."""
    if "operand" not in kept:
        kept["operand"] = x.clone()
    return right(kept["operand"])


def reused(x):
    """One output buffer for all calls: what was returned before is overwritten."""
    y = kept.setdefault(("buffer", x.shape, x.dtype), torch.empty_like(x))
    return torch.add(2 * x, 1, out=y)


def lazy_when_timed(x):
    """Works while it is verified and returns an old result while it is timed."""
    if phases_now == "time":
        return kept["first"].clone()
    kept["first"] = right(x)
    return kept["first"].clone()


def slow(x):
    time.sleep(0.005)
    return right(x)


def uncompilable(x):
    raise NotCompilable("line 3: tile of 3 elements is no power of two")


def failing(x):
    raise RuntimeError("a launch that cannot be\nand a second line that nobody needs")


def too_much_memory(x):
    """More than any limit that a test would set."""
    return right(torch.zeros(1 << 38, dtype=torch.uint8)[: len(x)].to(x.dtype))


def too_many_objects(x):
    return bytearray(1 << 38)


def hang(x):
    while True:
        time.sleep(0.01)


def hang_in_c(x):
    """Hangs where no Python signal handler or thread can help, with a child that would outlive it."""
    child = subprocess.Popen(["sleep", "600"])
    print(f"child {child.pid}", flush=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, set(range(1, 32)))
    while True:
        time.sleep(1)


def exit_now(x):
    os._exit(3)


def sys_exit(x):
    sys.exit(0)


def interrupt(x):
    raise KeyboardInterrupt


def killed(x):
    os.kill(os.getpid(), signal.SIGKILL)


def segfault(x):
    os.kill(os.getpid(), signal.SIGSEGV)


def noisy(x):
    """Prints what looks like the worker's own messages."""
    print('{"event": "done"}', flush=True)
    print('{"event": "record", "line": "nonsense"}', file=sys.stderr, flush=True)
    return right(x)


FAULTS = {
    "right": right,
    "last": last,
    "lower_precision": off_by_a_little,
    "zeros": torch.zeros_like,
    "dtype": lambda x: right(x).double(),
    "shape": lambda x: right(x)[:-1],
    "rank": lambda x: right(x)[None],
    "count": lambda x: (right(x), right(x)),
    "none": lambda x: None,
    "strides": lambda x: right(x).repeat_interleave(2)[::2],
    "aliasing": aliasing,
    "aliasing_a_view": aliasing_a_view,
    "mutating": mutating,
    "mutating_and_restoring_one": mutating_and_restoring_one,
    "cached_by_object": cached(by_object),
    "cached_by_pointer": cached(by_pointer),
    "cached_by_value": cached(by_some_values),
    "stale": stale,
    "nan": nan,
    "infinite": infinite,
    "tail": tail,
    "reused": reused,
    "lazy_when_timed": lazy_when_timed,
    "slow": slow,
    "noisy": noisy,
    "reference": right,
    "uncompilable": uncompilable,
    "memory": too_much_memory,
    "objects": too_many_objects,
    "raise": failing,
    "hang": hang,
    "hang_in_c": hang_in_c,
    "exit": exit_now,
    "sys_exit": sys_exit,
    "interrupt": interrupt,
    "killed": killed,
    "segfault": segfault,
}

phases_now = ""


def run(x: torch.Tensor, *, fault: str) -> torch.Tensor:
    """Return y [n], or misbehave."""
    global phases_now
    phases_now = phases.called()
    name, _, phase = fault.partition("@")
    if phases_now == "compile":
        kept.clear()
    return FAULTS[name](x) if phase in ("", phases_now) else right(x)


def default(case: Case) -> Config:
    return {"fault": case["fault"]}


def unsupported(case: Case, device: Device) -> str | None:
    return "n has to be even" if case["fault"] == "unsupported" else None


KERNEL = Kernel(run=run, default=default, unsupported=unsupported)
