"""Nsight Compute's command line: where it is, what to type, and what its failures mean."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilebench_core.diagnosis.tools import ToolMissing
from tilebench_core.errors import TilebenchError

__all__ = [
    "OLDEST",
    "REPLAYS",
    "Ncu",
    "NcuFailed",
    "absent_metrics",
    "explain",
    "find_ncu",
    "ncu_command",
    "report_module_dir",
    "run_ncu",
]

REPLAYS = ("application", "kernel")
OLDEST = (2023, 1)
"""The first Nsight Compute whose `ncu_report` this reads; it knows Hopper."""

_INSTALL = "install Nsight Compute (it is part of the CUDA toolkit), or put ncu on PATH"


class NcuFailed(TilebenchError):
    """Nsight Compute ended without a usable report. `hopeless`: the same would happen to every other capture here.

    `printed` is what it printed, from which metrics that it does not know are read.
    """

    def __init__(self, message: str, hopeless: bool = False, printed: str = "") -> None:
        super().__init__(message)
        self.hopeless, self.printed = hopeless, printed


@dataclass(frozen=True)
class Ncu:
    """An installed Nsight Compute."""

    path: str
    version: str


def find_ncu(path: str | None = None) -> Ncu:
    """Find ncu at `path`, on PATH or where CUDA's installers put it; raise ToolMissing if it is absent or too old."""
    placed = sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu")) + sorted(Path("/usr/local").glob("cuda*/bin/ncu"))
    found = path or shutil.which("ncu") or (str(placed[-1]) if placed else None)
    if found is None or not os.access(found, os.X_OK):
        raise ToolMissing(f"Nsight Compute (ncu) is not {'at ' + path if path else 'on this machine'}: {_INSTALL}")
    try:
        done = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolMissing(f"{found} --version does not run: {error}; {_INSTALL}") from error
    version = re.search(r"Version (\d+)\.(\d+)\S*", done.stdout)
    if version is None:
        raise ToolMissing(f"{found} --version names no version: {(done.stdout + done.stderr)[:200]!r}; {_INSTALL}")
    if (int(version[1]), int(version[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ToolMissing(
            f"Nsight Compute {version[0].split()[1]} is too old, {oldest} is the first that this reads: {_INSTALL}"
        )
    return Ncu(found, version[0].split()[1])


def report_module_dir(ncu: Ncu) -> str | None:
    """The folder of the `ncu_report` module that ships with `ncu`; None leaves it to an installed distribution."""
    real = Path(ncu.path).resolve()
    number = ".".join(ncu.version.split(".")[:3])
    roots = [*real.parents[:4], *Path("/opt/nvidia/nsight-compute").glob(f"{number}*")]
    roots += [folder for parent in real.parents[:3] for folder in parent.glob("nsight-compute-*")]
    return next(
        (str(root / "extras/python") for root in roots if (root / "extras/python/ncu_report.py").is_file()), None
    )


def ncu_command(
    ncu: Ncu, kernels: Iterable[str], metrics: Sequence[str], report: Path, replay: str, program: Sequence[str]
) -> list[str]:
    """The command line. Clocks are left alone; `replay` "application" leaves caches alone too, and runs the program again
    for each pass; "kernel" repeats each kernel, and evicts all caches before each pass."""
    names = "|".join(re.escape(name) for name in sorted(set(kernels)))
    return [
        ncu.path, "--target-processes", "application-only", "--profile-from-start", "off", "--nvtx",
        "--replay-mode", replay, "--cache-control", "none" if replay == "application" else "all",
        "--clock-control", "none", "--import-source", "yes", "--kernel-name-base", "mangled",
        "--kernel-name", f"regex:^({names})$", "--metrics", ",".join(metrics),
        "--force-overwrite", "--export", str(report), *program,
    ]  # fmt: skip


def run_ncu(command: Sequence[str], environment: Mapping[str, str], log: Path, limit_s: float) -> str:
    """Run ncu with its program, everything printed going to `log`, and return what was printed.

    Raises NcuFailed with the reason if it fails, or takes longer than `limit_s`: then the whole process group is killed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env={**os.environ, **environment}, start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise NcuFailed(
                f"ncu took longer than {limit_s:.0f} s and was killed; what it printed is in {log}"
            ) from None
        finally:  # whatever ends this process must not leave ncu and its program on the device
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        printed = output.read()
    if status != 0 or "==ERROR==" in printed:
        raise explain(printed, status, log)
    return printed


_HOPELESS = {
    "ERR_NVGPUCTRPERM": "ncu may not read the GPU's counters: run as root, or let the administrator set the driver's"
    " option NVreg_RestrictProfilingToAdminUsers=0 (in a container: --cap-add SYS_ADMIN)",
    "LibraryNotLoaded": "ncu cannot reach the driver's profiling library here («LibraryNotLoaded»): some sandboxes and"
    " virtual machines do not pass it through; profile on another machine",
    "is not supported for profiling": "this Nsight Compute does not support the GPU: install a newer one",
    "No metrics to collect": "none of the metrics exists in this Nsight Compute: install a newer one",
    "Another profiler": "another profiler or CUPTI client is attached: stop it and try again",
    "driver resource was unavailable": "another process profiles on this GPU: stop it and try again",
}  # fmt: skip


def explain(printed: str, status: int, log: Path) -> NcuFailed:
    """What ncu's output means."""
    for sign, meaning in _HOPELESS.items():
        if sign in printed:
            return NcuFailed(meaning, hopeless=True)
    errors = [line.removeprefix("==ERROR==").strip() for line in printed.splitlines() if line.startswith("==ERROR==")]
    reason = errors[0] if errors else (printed.strip().splitlines() or ["it printed nothing"])[-1]
    return NcuFailed(f"ncu ended with status {status}: {reason[:300]}; all it printed is in {log}", printed=printed)


def absent_metrics(printed: str, asked: Collection[str]) -> set[str]:
    """Of the metrics asked for, those that ncu says it cannot find (it names them as patterns, with their dots escaped)."""
    errors = [line.replace("\\", "") for line in printed.splitlines() if "Failed to find metric" in line]
    found = set()
    for name in asked:
        base = name.partition(".")[0]
        if any(re.search(rf"{re.escape(base)}(?![A-Za-z0-9_])", line) for line in errors):
            found.add(name)
    return found
