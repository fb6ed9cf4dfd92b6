"""In the worker: a candidate as a Kernel, watched while it runs outside any timing.

The first call for each case runs under a mode that sees every PyTorch function, however it was reached, and is
followed by a comparison of the harness's and PyTorch's functions with what they were before the candidate was imported.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from types import FrameType
from typing import Any

from tilebench_core.case import Case
from tilebench_core.errors import LaunchError
from tilebench_core.kernel import Config, Kernel

__all__ = ["DIAGNOSTIC", "FORBIDDEN", "NO_KERNEL", "guarded"]

FORBIDDEN = "forbidden at run time"
NO_KERNEL = "no kernel of the file ran"
DIAGNOSTIC = "=== diagnostic of the candidate"

_OWNERS = (
    "tilebench_core.verify.compare", "tilebench_core.verify.protocol", "tilebench_core.verify.prepare", "tilebench_core.worker.case",
    "tilebench_core.worker.timed", "tilebench_core.worker.describe", "tilebench_core.worker.messages", "tilebench_core.timing.rounds",
    "tilebench_core.timing.gpu", "tilebench_core.timing.clock", "tilebench_core.records", "torch", "torch.cuda", "torch.Tensor",
    "torch.testing", "time", "math", "builtins", "json", "statistics",
)  # fmt: skip

# Functions that allocate, initialise, tell about memory or look at it in another way; everything else computes or copies.
_ALLOWED = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "zeros",
    "zeros_like", "new_zeros", "full", "full_like", "new_full", "zero_", "fill_", "view", "view_as", "reshape",
    "as_strided", "select", "expand", "expand_as", "t", "transpose", "swapaxes", "permute", "unsqueeze",
    "squeeze", "detach", "unbind", "split", "chunk", "narrow", "flatten", "unflatten", "ravel", "movedim",
    "diagonal", "size", "stride", "numel", "nelement", "dim", "ndimension", "element_size", "data_ptr",
    "storage_offset", "is_contiguous", "is_floating_point", "is_complex", "is_signed", "get_device",
    "untyped_storage", "type", "finfo", "iinfo", "is_tensor", "broadcast_shapes", "promote_types",
    "result_type", "get_default_dtype", "contiguous", "__get__", "__len__", "__hash__", "__repr__",
    "__dlpack__", "__dlpack_device__", "__cuda_array_interface__", "_typed_storage",
}  # fmt: skip


def _snapshot() -> dict[tuple[str, str], tuple[Any, Any]]:
    """The functions and classes that judge a candidate, with their code."""
    taken = {}
    for owner in _OWNERS:
        module, _, name = owner.rpartition(".")
        holder = getattr(sys.modules[module], name) if owner == "torch.Tensor" else sys.modules.get(owner)
        for key, value in list(vars(holder).items()) if holder is not None else ():
            if callable(value):
                taken[owner, key] = (value, getattr(value, "__code__", None))
    return taken


def _check(before: dict[tuple[str, str], tuple[Any, Any]]) -> None:
    """Raise LaunchError if anything that judges the candidate is no longer what it was."""
    for (owner, key), known in before.items():
        module, _, name = owner.rpartition(".")
        holder = getattr(sys.modules[module], name) if owner == "torch.Tensor" else sys.modules.get(owner)
        now = vars(holder).get(key)
        if now is not known[0] or getattr(now, "__code__", None) is not known[1]:
            raise LaunchError(f"{FORBIDDEN}: {owner}.{key} was replaced")


def _nearest_file(frame: FrameType | None) -> str:
    """The file of the innermost frame that is neither PyTorch's nor this module's."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name != __file__ and "/torch/" not in name and not name.startswith("<frozen"):
            return name
        frame = frame.f_back
    return ""


@contextmanager
def _seeing_functions(file: str, seen: list[str]) -> Iterator[None]:
    """Collect every PyTorch function that is called from the candidate's own file and does more than allocate or view."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Watch(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
            name = getattr(function, "__name__", str(function)).partition(".")[0]
            gathers = name == "__getitem__" and any(isinstance(part, torch.Tensor) for part in _index(arguments))
            moves = name == "contiguous" and not arguments[0].is_contiguous()
            computes = (name not in _ALLOWED and name != "__getitem__") or gathers or moves
            if computes and _nearest_file(sys._getframe(1)) == file:
                seen.append(name)
            return function(*arguments, **(keywords or {}))

    with Watch():
        yield


def _index(arguments: Sequence[Any]) -> Sequence[Any]:
    index = arguments[1] if len(arguments) > 1 else ()
    return index if isinstance(index, (tuple, list)) else (index,)


@contextmanager
def _counting_calls(names: frozenset[str], counted: list[str]) -> Iterator[None]:
    """Where kernels are interpreted, see whether their functions are called at all."""

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name in names:
            counted.append(frame.f_code.co_name)

    previous = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(previous)


def guarded(module_name: str, kernels: Sequence[str], interpreted: bool) -> Kernel:
    """Import a candidate and return it as a Kernel. Raises LaunchError if importing it changed what judges it."""
    import torch
    import torch.testing  # noqa: F401

    before = _snapshot()
    with _explained():
        candidate = import_module(module_name)
        _check(before)
        run = candidate.run
        if not callable(run):
            raise LaunchError("`run` is no function")
    own = getattr(candidate, "KERNEL", None)
    own = own if isinstance(own, Kernel) else Kernel(run=run)
    watched = _Watched(
        run if own.run is run else own.run, str(candidate.__file__), frozenset(kernels), interpreted, before
    )

    def default(case: Case) -> Config:
        watched.fresh = True
        with _explained():
            return dict(own.default(case))

    return Kernel(run=watched, default=default, unsupported=own.unsupported)


class _Watched:
    """A candidate's `run`: watched on its first call for each case, and called as it is after that."""

    def __init__(
        self, run: Callable[..., Any], file: str, kernels: frozenset[str], interpreted: bool, before: dict[Any, Any]
    ) -> None:
        self.run, self.file, self.kernels, self.interpreted, self.before = run, file, kernels, interpreted, before
        self.fresh = True
        self.calls = 0

    def __call__(self, *inputs: Any, **config: Any) -> Any:
        if self.fresh:
            self.fresh, self.calls = False, 0
            return self._watched(inputs, config)
        outputs = self.run(*inputs, **config)
        self.calls += 1
        if self.calls <= 3:  # the calls that are verified, and the capture; none of them is timed
            _check(self.before)
        return outputs

    def _watched(self, inputs: tuple[Any, ...], config: dict[str, Any]) -> Any:
        seen: list[str] = []
        called: list[str] = []
        counting = _counting_calls(self.kernels, called) if self.interpreted else nullcontext()
        with _explained(), _seeing_functions(self.file, seen), counting:
            outputs = self.run(*inputs, **config)
        if seen:
            raise LaunchError(f"{FORBIDDEN}: PyTorch computed {', '.join(sorted(set(seen)))} for the candidate")
        if self.interpreted and not called:
            raise LaunchError(NO_KERNEL)
        _check(self.before)
        return outputs


@contextmanager
def _explained() -> Iterator[None]:
    """Print the whole of an exception for the diagnostic; a record keeps its first line only."""
    try:
        yield
    except Exception:
        print(f"{DIAGNOSTIC}\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        raise
