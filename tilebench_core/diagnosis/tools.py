"""Where NVIDIA's disassembler and profiler are on this machine, and what to type where they are not."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from tilebench_core.errors import TilebenchError

__all__ = ["DISASSEMBLER_COMMAND", "ToolMissing", "disassemble", "disassembler", "packaged"]

DISASSEMBLER_COMMAND = "pip install 'tilebench[diagnosis]'"
_TIMEOUT_S = 120


class ToolMissing(TilebenchError):
    """A program that this needs is not on the machine; the message says how to get it."""


def packaged(distribution: str, program: str) -> str | None:
    """The path of `program` inside an installed PyPI distribution, or None."""
    try:
        found = [file.locate() for file in files(distribution) or [] if file.name == program]
    except PackageNotFoundError:
        return None
    return next((str(path) for path in found if os.access(str(path), os.X_OK)), None)


def disassembler() -> tuple[str, ...]:
    """The command line that prints SASS with source lines, less the cubin's path.

    nvdisasm is preferred: it names source lines and reads newer binaries from PyPI than an older toolkit on PATH does.
    Raises ToolMissing with the command that installs it.
    """
    nvdisasm = packaged("nvidia-cuda-nvdisasm", "nvdisasm") or shutil.which("nvdisasm")
    if nvdisasm is not None:
        return nvdisasm, "-c", "-g"
    cuobjdump = packaged("nvidia-cuda-cuobjdump", "cuobjdump") or shutil.which("cuobjdump")
    if cuobjdump is not None:
        return cuobjdump, "-sass"
    raise ToolMissing(
        "no disassembler: neither nvdisasm nor cuobjdump is on PATH or installed from PyPI; install one with: "
        f"{DISASSEMBLER_COMMAND} (or pip install nvidia-cuda-nvdisasm)"
    )


def disassemble(cubin: bytes) -> str:
    """Disassemble a cubin. Raises ToolMissing without a disassembler, TilebenchError with its message if it fails."""
    command = disassembler()
    with tempfile.TemporaryDirectory(prefix="tilebench-sass-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            done = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise TilebenchError(f"{command[0]} took longer than {_TIMEOUT_S} s") from error
    if done.returncode != 0:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        reason = lines[0].strip() if lines else f"exit status {done.returncode}"
        raise TilebenchError(f"{command[0]} cannot read the binary: {reason}; a newer one: {DISASSEMBLER_COMMAND}")
    return done.stdout
