"""What a process behind the walls gets: the paths that it may read, its devices, its environment, its limits."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tilebench_core.device import Device
from tilebench_core.llm.config import Isolation

__all__ = ["BLOCKED", "SCRATCH", "Walls", "readable_paths"]

SCRATCH = "/scratch"
"""The one folder inside that can be written to. It lies in memory and is gone with the process."""

BLOCKED = {71: "more processes than allowed", 72: "more memory than allowed"}
"""Exit statuses of the watcher, and what they say."""

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/sys", "/etc/ld.so.cache", "/etc/ld.so.conf",
           "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime", "/run/opengl-driver", "/nix/store")  # fmt: skip
_DEVICES = ("nvidia*", "nvidia-caps/*")
_INHERITED = ("LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE",
              "OMP_NUM_THREADS", "CC", "CXX")  # fmt: skip


def _package_roots(names: Iterable[str]) -> list[Path]:
    """The folders of importable packages."""
    found = []
    for name in names:
        spec = find_spec(name)
        if spec is not None:
            found += [Path(place) for place in spec.submodule_search_locations or ()]
    return found


def _compiler_folders() -> list[Path]:
    """The folders of the C and C++ compilers, which Triton and nvcc call: those of CC and CXX, else what PATH finds."""
    found = (shutil.which(os.environ.get(name) or default) for name, default in (("CC", "gcc"), ("CXX", "g++")))
    return list(dict.fromkeys(Path(path).parent for path in found if path))


def readable_paths(packages: Iterable[str]) -> list[str]:
    """What must be visible for Python and `packages` to be imported: interpreters, site-packages, package folders.

    Never the home folder or the working directory as a whole, where secrets lie: of those only what is named here.
    """
    paths = [Path(path) for path in _SYSTEM]
    paths += [Path(sys.prefix), Path(sys.base_prefix)]
    forbidden = {
        Path.home().resolve(),
        Path.cwd().resolve(),
        *Path.cwd().resolve().parents,
        *Path.home().resolve().parents,
    }
    for entry in sys.path:
        place = Path(entry)
        metadata = [*place.glob("*.dist-info"), *place.glob("*.egg-info")] if entry and place.is_dir() else []
        if entry and place.resolve() not in forbidden and (metadata or place.is_file()):
            paths.append(place)
        else:
            paths += metadata  # of a folder that must stay hidden, only what announces its plugins
    for folder in _compiler_folders():
        whole = folder.resolve().parent  # with its headers and libraries
        paths.append(folder if whole in forbidden else whole)
    paths += _package_roots(["tilebench_core", "tilebench_core.conf", *packages])
    for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":") + [
        os.environ.get(n, "") for n in ("CUDA_HOME", "CUDA_PATH")
    ]:
        paths += [Path(entry)] if entry and Path(entry).resolve() not in forbidden else []
    kept: list[Path] = []
    for path in dict.fromkeys(path.absolute() for path in paths if os.path.lexists(path)):
        resolved = path.resolve()
        kept += [path] if path.is_symlink() and str(path.parent) == "/" else []
        if not (path.is_symlink() and str(path.parent) == "/"):
            kept += [resolved] if resolved != path else []
            kept += [path]
    # What lies inside of another path is there already; the order lets outer folders come first.
    kept = sorted(set(kept), key=lambda path: (len(path.parts), str(path)))
    outer: list[Path] = []
    for path in kept:
        if not any(path != other and path.is_relative_to(other) and not other.is_symlink() for other in outer):
            outer.append(path)
    return [str(path) for path in outer]


@dataclass(frozen=True, kw_only=True)
class Walls:
    """How commands are put behind walls. `mode` is bubblewrap, namespaces or none; `readable` what they see of the disk."""

    mode: str
    isolation: Isolation
    readable: tuple[str, ...]
    is_gpu: bool

    @classmethod
    def around(cls, mode: str, isolation: Isolation, packages: Sequence[str], device: Device) -> Walls:
        """Walls for a worker that imports `packages` and uses `device`."""
        return cls(mode=mode, isolation=isolation, readable=tuple(readable_paths(packages)), is_gpu=device.is_gpu)

    def environment(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """The whole environment inside: nothing is inherited but what a compiler or a loader needs to find its files."""
        home = SCRATCH if self.mode != "none" else "/nonexistent"
        kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        system = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
        path = dict.fromkeys([f"{sys.prefix}/bin", *system, *map(str, _compiler_folders())])
        return {
            **kept, "PATH": ":".join(path), "HOME": home,
            "USER": "candidate", "LOGNAME": "candidate", "PYTHONDONTWRITEBYTECODE": "1", **wanted,
        }  # fmt: skip

    def command(
        self, command: Sequence[str], root: Path, environment: Mapping[str, str], extra: Sequence[str] = ()
    ) -> list[str]:
        """The command line that runs `command` behind the walls. `root` is an empty folder, `extra` more readable paths."""
        if self.mode == "none":
            return list(command)
        folder = Path(__file__).parent
        memory = int(self.isolation.memory_gb * 2**30)
        spec = {
            "mode": self.mode,
            "bubblewrap": shutil.which("bwrap"),
            "root": str(root),
            "readable": [*self.readable, *extra],
            "devices": sorted({str(p) for pattern in _DEVICES for p in Path("/dev").glob(pattern)})
            if self.is_gpu
            else [],
            "scratch": SCRATCH,
            "scratch_bytes": int(self.isolation.scratch_gb * 2**30),
            "environment": dict(environment),
            "watch": str(folder / "watch.py"),
            # CUDA reserves address space by the hundred gigabytes; there only what is really held is counted.
            "limits": {
                "processes": self.isolation.processes,
                "memory_bytes": memory,
                "data_bytes": 0 if self.is_gpu else memory,
            },
        }
        return [sys.executable, "-I", "-S", str(folder / "enter.py"), json.dumps(spec), *command]
