"""What a kernel's `run` builds and launches, seen from inside TileLang: with a GPU, or for one that is not there.

`@tilelang.jit` turns a factory into a `JITImpl`: calling it compiles and returns a `JITKernel`, calling that launches.
"""

from __future__ import annotations

import contextlib
import logging
import re
import tempfile
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from tilebench_core import CompileError, LaunchCode, LaunchError, Resources
from tilebench_core.diagnosis.cubin import KernelUse, kernel_uses

from tilebench_tilelang.cubin import embedded_cubin
from tilebench_tilelang.errors import one_line

__all__ = ["absent_gpu", "captured_launches", "compiled_only", "exact_arch", "quiet", "requested", "without_data"]


def exact_arch(arch: str) -> str:
    """Return the architecture whose own instructions TileLang uses, WGMMA among them: "sm_90a" for "sm_90"."""
    return f"{arch}a" if arch[-1].isdigit() and int(arch.removeprefix("sm_")) >= 90 else arch


def quiet() -> None:
    """Silence TileLang's logger, which writes progress to standard output whatever the program's logging says."""
    logger = logging.getLogger("tilelang")
    logger.handlers = [logging.NullHandler()]


@contextlib.contextmanager
def captured_launches() -> Iterator[list[LaunchCode]]:
    """Collect every kernel that is launched inside the context, and raise our errors in place of TileLang's."""
    from tilelang.jit import JITImpl, JITKernel

    launches: list[LaunchCode] = []
    compile_factory, call = JITImpl.compile, JITKernel.__call__

    def compile_or_explain(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return compile_factory(self, *args, **kwargs)
        except Exception as error:  # TileLang and TVM have no common error type
            raise CompileError(one_line(error)) from error

    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        launches.extend(_compiled_code(self))
        try:
            return call(self, *args, **kwargs)
        except Exception as error:  # the same
            raise LaunchError(one_line(error)) from error

    with _replaced(JITImpl, "compile", compile_or_explain), _replaced(JITKernel, "__call__", launch):
        yield launches


@contextlib.contextmanager
def compiled_only(arch: str | None = None) -> Iterator[None]:
    """Let factories compile, into TileLang's disk cache too, and launches do nothing.

    Kernels that ask for the target are told `arch`; without it they ask the GPU, which a process that compiles ahead cannot see.
    """
    from tilelang.jit import JITKernel

    target = _target(arch) if arch else contextlib.nullcontext()
    with target, captured_launches(), _replaced(JITKernel, "__call__", lambda self, *args, **kwargs: None):
        yield


@contextlib.contextmanager
def requested(arch: str) -> Iterator[list[Hashable]]:
    """Collect which factories are called inside the context, and with what; nothing is built or launched."""
    from tilelang.jit import JITImpl

    calls: list[Hashable] = []

    def note(self: Any, *args: Any, **kwargs: Any) -> Callable[..., None]:
        calls.append(_call_key(self, args, kwargs))
        return lambda *tensors: None

    with _target(arch), _replaced(JITImpl, "__call__", note):
        yield calls


def without_data(inputs: Sequence[Any]) -> list[Any]:
    """The inputs with tensors of the same shapes, strides and dtypes that have no storage: nothing else is looked at."""
    import torch

    return [
        torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
        if isinstance(value, torch.Tensor)
        else value
        for value in inputs
    ]


def _target(arch: str) -> Any:
    from tvm.target import Target

    return Target({"kind": "cuda", "arch": exact_arch(arch)})


def _call_key(factory: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Hashable:
    return id(factory), args, tuple(sorted(kwargs.items()))


@contextlib.contextmanager
def absent_gpu(arch: str, assemble: bool) -> Iterator[list[LaunchCode]]:
    """Lower what is launched inside the context for a GPU of `arch` (e.g. "sm_90"), and collect it; nothing runs.

    With `assemble`, nvcc makes a binary of the CUDA source too, so that registers and spills are known.
    """
    from tilelang.jit import JITImpl

    launches: list[LaunchCode] = []
    target = _target(arch)
    lowered: dict[Hashable, list[LaunchCode]] = {}

    def build(self: Any, *args: Any, **kwargs: Any) -> Callable[..., None]:
        key = _call_key(self, args, kwargs)
        if key not in lowered:
            try:
                lowered[key] = _lower(self, args, kwargs, target, assemble)
            except CompileError:
                raise
            except Exception as error:  # TileLang and TVM have no common error type
                raise CompileError(one_line(error)) from error
        return lambda *tensors: launches.extend(lowered[key])

    with target, _replaced(JITImpl, "__call__", build):  # kernels may choose by the target which of theirs they launch
        yield launches


def _lower(factory: Any, args: Any, kwargs: Any, target: Any, assemble: bool) -> list[LaunchCode]:
    import tilelang
    from tilelang.transform.pass_config import normalize_pass_configs

    # TileLang keeps what a factory has built whatever the target was, and a kernel may have been written for each.
    factory.func.p1_cache.clear()
    with target:
        function = factory.get_tir(*args, **kwargs)
    if not factory.is_lazy_mode():
        raise CompileError("a kernel factory takes no tensors and returns its T.prim_func; this one doesn't")
    passes = dict(normalize_pass_configs(factory.pass_configs) or {})
    if factory.compile_flags:
        flags = factory.compile_flags
        passes[tilelang.PassConfigKey.TL_DEVICE_COMPILE_FLAGS] = [flags] if isinstance(flags, str) else list(flags)
    with tilelang.tvm.transform.PassContext(opt_level=3, config=passes), target:
        artifact = tilelang.lower(function, target=target, enable_host_codegen=True)
    cubin, ptx = _assemble(artifact.kernel_source, target, passes) if assemble else (None, None)
    return _launch_codes(artifact.kernel_source, artifact.rt_mod.inspect_source(), cubin, ptx)


def _assemble(source: str, target: Any, passes: dict[Any, Any]) -> tuple[bytes, str]:
    """Return the binary that TileLang makes of the CUDA `source`, and the PTX on the way to it.

    nvcc is asked to keep the PTX of that very run, so it must run: TileLang's cache of binaries is left out.
    """
    import tilelang
    from tilelang.cache.cuda_binary_cache import CUDABinaryCache
    from tilelang.cuda.backend import tilelang_callback_cuda_compile

    key = tilelang.PassConfigKey.TL_DEVICE_COMPILE_FLAGS
    with (
        tempfile.TemporaryDirectory(prefix="tilebench-nvcc-") as folder,
        mock.patch.object(CUDABinaryCache, "load", return_value=None),
        mock.patch.object(CUDABinaryCache, "save"),
    ):
        keeping = {**passes, key: [*passes.get(key, []), "--keep", "--keep-dir", folder]}
        cubin = bytes(tilelang_callback_cuda_compile(source, target, keeping))
        (ptx,) = Path(folder).glob("*.ptx")
        return cubin, ptx.read_text(encoding="utf-8")


def _compiled_code(kernel: Any) -> list[LaunchCode]:
    cached = getattr(kernel, "_tilelang_cache_path", None)  # absent if TileLang's disk cache is off
    libraries = sorted(Path(cached).glob("*.so")) if cached else []
    cubin = embedded_cubin(libraries[0].read_bytes()) if libraries else None
    return _launch_codes(
        kernel.adapter.get_kernel_source(kernel_only=True), kernel.adapter.get_host_source() or "", cubin
    )


_KERNEL = re.compile(r"__global__ void __launch_bounds__\((\d+)[^)]*\) (\w+)\(([^{;]*)\) \{")


def _launch_codes(source: str, host: str, cubin: bytes | None, ptx: str | None = None) -> list[LaunchCode]:
    """One entry for each `__global__` function of the CUDA `source`; `host` is the C code that launches them."""
    uses: dict[str, KernelUse] = kernel_uses(cubin) if cubin is not None else {}
    stages: dict[str, str | bytes] = {"cuda": source}
    stages.update({name: stage for name, stage in (("ptx", ptx), ("cubin", cubin)) if stage is not None})
    codes = []
    found = list(_KERNEL.finditer(source))
    for i, match in enumerate(found):
        threads, name = int(match[1]), match[2]
        body = source[match.start() : found[i + 1].start() if i + 1 < len(found) else None]
        dynamic = _dynamic_shared_bytes(host, name) if "extern __shared__" in body else 0
        use = uses.get(name)
        codes.append(
            LaunchCode(
                name=name,
                resources=Resources(
                    registers=use.registers if use else None,
                    shared_bytes=dynamic + (use.shared_bytes if use else 0),
                    dynamic_shared_bytes=dynamic,
                    spill_bytes=use.frame_bytes if use else None,
                    stack_bytes=use.frame_bytes if use else None,
                    threads=threads,
                ),
                stages=stages,
            )
        )
    return codes


def _dynamic_shared_bytes(host: str, name: str) -> int:
    """The last argument of the launch: it is the dynamic shared memory wherever the kernel declares some."""
    call = re.search(rf"TVMFFIFunctionCall\({name}_packed, \(TVMFFIAny\*\) stack_ffi_any, (\d+),", host)
    if call is None:
        return 0
    values = re.findall(
        rf"stack_ffi_any\)\[{int(call[1]) - 1}\]\.v_int64\) = \(\(int64_t\)(\d+)\);", host[: call.start()]
    )
    return int(values[-1]) if values else 0


@contextlib.contextmanager
def _replaced(owner: type, name: str, value: Any) -> Iterator[None]:
    original = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)
