"""What a kernel's `run` launches, and the code that cuTile makes of it."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from tilebench_core import LaunchCode

from tilebench_cutile.absent import on_device
from tilebench_cutile.cubin import cubin_resources, cubin_texts

__all__ = ["Launch", "compile_launch", "compiled_launch", "fill_cache", "launch_key", "recorded_launches"]


@dataclasses.dataclass(frozen=True)
class Launch:
    """A kernel, the arguments it was launched with, its grid, and the code if this launch was the one that compiled it."""

    kernel: Any
    arguments: tuple[Any, ...]
    grid: tuple[int, ...] = ()
    cubin: bytes | None = None


@contextlib.contextmanager
def recorded_launches(launch_too: bool) -> Iterator[list[Launch]]:
    """Collect the calls of `ct.launch` inside the context; they reach cuTile with `launch_too`, else nothing does."""
    import cuda.tile
    from cuda.tile import _compile as compiler

    launches: list[Launch] = []
    cubins: list[bytes] = []
    original, original_compile = cuda.tile.launch, compiler.compile_tile

    def compile_tile(*arguments: Any, **options: Any) -> Any:
        result = original_compile(*arguments, **options)
        cubins.append(bytes(result.cubin))
        return result

    def launch(stream: Any, grid: Any, kernel: Any, arguments: Any, /, **options: Any) -> None:
        cubins.clear()
        if launch_too:
            original(stream, grid, kernel, arguments, **options)
        launches.append(Launch(kernel, tuple(arguments), tuple(grid), cubins[-1] if cubins else None))

    with mock.patch.object(cuda.tile, "launch", launch), mock.patch.object(compiler, "compile_tile", compile_tile):
        yield launches


_KNOWN: dict[tuple[Any, ...], LaunchCode] = {}
_FILLED: set[tuple[Any, ...]] = set()


def compiled_launch(launch: Launch, arch: str) -> LaunchCode:
    """Return the code of a launch that has run: what it compiled, or what cuTile finds in its disk cache, where that is on.

    It is kept for the process: even a cache hit passes through cuTile's front end, up to seconds for each of the
    dozens of launches of a sort, and a campaign asks again for every case.
    """
    from cuda.tile._cext import default_tile_context

    key = launch_key(launch, arch)
    if key not in _KNOWN:
        cubin = launch.cubin or _compile(launch, arch, default_tile_context)
        _KNOWN[key] = _launch_code(launch, cubin)
    return _KNOWN[key]


def launch_key(launch: Launch, arch: str) -> tuple[Any, ...]:
    """What decides about the code. Signatures cannot be hashed, their texts can."""
    return launch.kernel._pyfunc, str(launch.kernel._compiler_options), str(_signature(launch)), arch


def compile_launch(launch: Launch, arch: str, timeout_s: float) -> LaunchCode:
    """Compile a launch for `arch` (e.g. "sm_90") outside cuTile's caches, with the compiler's remarks."""
    from cuda.tile import _compile as compiler
    from cuda.tile._cext import TileContext, default_tile_context

    original = compiler.compile_cubin
    context = TileContext(
        config=dataclasses.replace(default_tile_context.config, cache_dir=None, compiler_timeout_sec=timeout_s)
    )
    with tempfile.TemporaryDirectory() as folder:
        remarks = Path(folder) / "remarks.yaml"
        wanted = {"remarks_output_file": remarks} if _reports_remarks(context) else {}

        def compile_cubin(*arguments: Any, **options: Any) -> Any:
            return original(*arguments, **{**options, **wanted})

        with mock.patch.object(compiler, "compile_cubin", compile_cubin):
            cubin = _compile(launch, arch, context)
        text = remarks.read_text(encoding="utf-8", errors="replace") if remarks.exists() else ""
    return _launch_code(launch, cubin, text)


def _reports_remarks(context: Any) -> bool:
    """True from tileiras 13.4 on."""
    from cuda.tile import _compile as compiler

    supported = getattr(compiler, "_tileiras_supports_remarks", None)
    return supported is not None and bool(supported(context.config.temp_dir))


def fill_cache(launch: Launch, arch: str) -> None:
    """Compile a launch for `arch` into cuTile's disk cache."""
    from cuda.tile._cext import default_tile_context

    key = launch_key(launch, arch)
    if key not in _FILLED:
        _compile(launch, arch, default_tile_context)
        _FILLED.add(key)


def _compile(launch: Launch, arch: str, context: Any) -> bytes:
    from cuda.tile._compile import compile_tile

    kernel = launch.kernel
    result = compile_tile(
        kernel._annotated_function,
        [_signature(launch)],
        f"sm_{arch.removeprefix('sm_').rstrip('af')}",  # cuTile knows no sm_90a: it uses its features anyway
        kernel._compiler_options,
        context,
    )
    return bytes(result.cubin)


def _signature(launch: Launch) -> Any:
    """The signature that a launch with these arguments gets: the first calling convention that can express it."""
    from cuda.tile.compilation import CallingConvention, KernelSignature

    arguments = tuple(on_device(argument) for argument in launch.arguments)
    try:
        return KernelSignature.from_kernel_args(launch.kernel, arguments, CallingConvention.cutile_python_v1())
    except ValueError:  # static shapes and tuples need version 2, which says so itself if anything else is wrong
        return KernelSignature.from_kernel_args(launch.kernel, arguments, CallingConvention.cutile_python_v2())


def _launch_code(launch: Launch, cubin: bytes, remarks: str = "") -> LaunchCode:
    stages: dict[str, str | bytes] = dict(cubin_texts(cubin))
    if remarks:
        stages["remarks"] = _without_repetitions(remarks)
    stages["cubin"] = cubin
    return LaunchCode(name=launch.kernel._pyfunc.__name__, resources=cubin_resources(cubin), stages=stages)


def _without_repetitions(remarks: str) -> str:
    """The compiler writes every remark twice; keep the first of each."""
    documents = [document for document in remarks.split("--- ") if document.strip()]
    return "".join(f"--- {document}" for document in dict.fromkeys(documents))
