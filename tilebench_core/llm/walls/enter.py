"""Goes behind the walls and becomes the watcher there: `python -I -S enter.py SPEC COMMAND…`.

A script of its own, which imports nothing of TileBench. SPEC is the JSON that `walls.spec` writes. Either bubblewrap makes
the namespaces, or this script does, with the same result: a root of read-only mounts, a scratch folder in memory, no
network, processes of its own, no capabilities.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, NOATIME, NODIRATIME = 1, 2, 4, 8, 32, 1024, 2048
BIND, REC, PRIVATE, RELATIME, DETACH = 4096, 16384, 1 << 18, 1 << 21, 2
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
DEVICES = ("null", "zero", "full", "random", "urandom")
INSIDE = 1000  # the user inside; not root, so that its capabilities end with the next exec

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """Raise OSError if a call of libc failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str | None, target: str, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    """Mount, as mount(2) says; raise OSError."""
    encoded = [value.encode() if value is not None else None for value in (source, target, kind)]
    check(libc.mount(*encoded, ctypes.c_ulong(flags), options.encode() if options else None), f"mount {target}")


def place(root: str, path: str, is_folder: bool) -> str:
    """Make a mount point for `path` below `root`."""
    target = root + path
    if is_folder:
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.lexists(target):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    return target


def kept_flags(path: str) -> int:
    """The flags that a mount has and that a user namespace may not take off."""
    names = {
        "ST_NOSUID": NOSUID,
        "ST_NODEV": NODEV,
        "ST_NOEXEC": NOEXEC,
        "ST_NOATIME": NOATIME,
        "ST_NODIRATIME": NODIRATIME,
        "ST_RELATIME": RELATIME,
    }
    flags = os.statvfs(path).f_flag
    return sum(ours for name, ours in names.items() if flags & getattr(os, name))


def bind(root: str, path: str) -> None:
    """Show `path` at the same place in the new root, read-only; a symbolic link is made again."""
    if os.path.islink(path):
        target = root + path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.lexists(target):
            os.symlink(os.readlink(path), target)
        return
    target = place(root, path, os.path.isdir(path))
    mount(path, target, None, BIND | REC)
    with open("/proc/self/mountinfo") as rows:
        points = [row.split()[4].encode().decode("unicode_escape") for row in rows]
    for point in [p for p in points if p == target or p.startswith(target + "/")]:
        try:
            mount(None, point, None, REMOUNT | BIND | RDONLY | kept_flags(point))
        except OSError:
            if point == target:
                raise  # a mount below it that cannot be changed (of another owner) stays as it is for everyone


def guarded(proc: str) -> list[str]:
    """The entries of /proc, mounted at `proc`, that must be read-only: all but those of processes.

    Where root starts the run, the kernel takes the user inside for root when it guards /proc/sys and its like. The whole of
    /proc cannot be read-only: the CUDA driver writes to its own process's entries, and does not start where it may not.
    """
    entries = [f"{proc}/{name}" for name in sorted(os.listdir(proc)) if not name.isdigit()]
    return [entry for entry in entries if not os.path.islink(entry)]


def build(spec: dict[str, Any]) -> None:
    """Make the new root and go there."""
    mount(None, "/", None, REC | PRIVATE)
    root = spec["root"]
    mount("tmpfs", root, "tmpfs", NOSUID | NODEV, "mode=755,size=64m")
    # First these, since what must be readable may lie in the real /tmp.
    for path in ("/tmp", spec["scratch"]):
        mount("tmpfs", place(root, path, True), "tmpfs", NOSUID | NODEV, f"mode=1777,size={spec['scratch_bytes']}")
    for path in spec["readable"]:
        bind(root, path)
    dev = place(root, "/dev", True)
    mount("tmpfs", dev, "tmpfs", NOSUID, "mode=755,size=1m")
    for path in [f"/dev/{name}" for name in DEVICES] + spec["devices"]:
        if os.path.isdir(path):
            mount(path, place(root, path, True), None, BIND | REC)
        else:
            mount(path, place(root, path, False), None, BIND)
    for name, to in (
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ):
        os.symlink(to, f"{dev}/{name}")
    mount("tmpfs", place(root, "/dev/shm", True), "tmpfs", NOSUID | NODEV, f"mode=1777,size={spec['scratch_bytes']}")
    proc = place(root, "/proc", True)
    try:
        mount("proc", proc, "proc", NOSUID | NODEV | NOEXEC)
    except OSError:
        # Containers that mask parts of /proc forbid a fresh one. Theirs shows other processes, but not their environment;
        # all of it is read-only, and CUDA does not start.
        mount("/proc", proc, None, BIND | REC)
        mount(None, proc, None, REMOUNT | BIND | RDONLY | kept_flags(proc))
    else:
        for entry in guarded(proc):
            mount(entry, entry, None, BIND | REC)
            mount(None, entry, None, REMOUNT | BIND | RDONLY | kept_flags(entry))
    mount(None, dev, None, REMOUNT | BIND | RDONLY | kept_flags(dev))
    for name, text in (
        ("passwd", f"candidate:x:{INSIDE}:{INSIDE}::{spec['scratch']}:/bin/sh\n"),
        ("group", f"candidate:x:{INSIDE}:\n"),
    ):
        with open(place(root, f"/etc/{name}", False), "w") as file:
            file.write(text)
    os.chdir(root)
    check(libc.pivot_root(b".", b"."), "pivot_root")
    check(libc.umount2(b".", DETACH), "umount of the old root")
    os.chdir("/")
    mount(None, "/", None, REMOUNT | BIND | RDONLY | NOSUID | NODEV)


def namespaces(spec: dict[str, Any], command: list[str]) -> None:
    """Make the namespaces, become process 1 of them, and start the watcher."""
    uid, gid = os.geteuid(), os.getegid()
    check(libc.unshare(NEWUSER | NEWNS | NEWPID | NEWNET | NEWIPC | NEWUTS), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{INSIDE} {uid} 1"), ("gid_map", f"{INSIDE} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    pid = os.fork()
    if pid:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: os.kill(pid, signal.SIGKILL))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os._exit(code if code >= 0 else 128 - code)
    try:
        check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
        build(spec)
        os.chdir(spec["scratch"])
        check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
        os.execve(command[0], command, spec["environment"])
    except BaseException as error:  # this process has become another one: nothing may go back into the parent's code
        print(f"walls: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(126)


def bubblewrap(spec: dict[str, Any], command: list[str]) -> None:
    """Let bubblewrap do the same."""
    arguments = [
        spec["bubblewrap"],
        "--unshare-user",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--as-pid-1",
        "--die-with-parent",
        "--cap-drop",
        "ALL",
        "--clearenv",
        "--uid",
        str(INSIDE),
        "--gid",
        str(INSIDE),
    ]
    for path in ("/tmp", spec["scratch"]):
        arguments += ["--size", str(spec["scratch_bytes"]), "--tmpfs", path]
    for path in spec["readable"]:
        arguments += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind", path, path]
    arguments += ["--dev", "/dev", "--proc", "/proc"]
    for path in spec["devices"]:
        arguments += ["--dev-bind", path, path]
    arguments += ["--size", str(spec["scratch_bytes"]), "--tmpfs", "/dev/shm"]
    for entry in guarded("/proc"):
        arguments += ["--ro-bind", entry, entry]
    for path in ("/dev", "/"):
        arguments += ["--remount-ro", path]
    arguments += ["--chdir", spec["scratch"]]
    for name, value in spec["environment"].items():
        arguments += ["--setenv", name, value]
    os.execv(spec["bubblewrap"], [*arguments, "--", *command])


def main() -> None:
    """Go behind the walls."""
    spec, command = json.loads(sys.argv[1]), sys.argv[2:]
    try:
        # Above everything that a candidate starts, so that a thousand processes cannot keep the watcher from counting.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        pass  # only root may; for everyone else the kernel enforces the number of processes
    watched = [sys.executable, "-I", "-S", spec["watch"], json.dumps(spec["limits"]), *command]
    try:
        {"bubblewrap": bubblewrap, "namespaces": namespaces}[spec["mode"]](spec, watched)
    except OSError as error:
        print(f"walls: {error}", file=sys.stderr, flush=True)
        os._exit(126)


if __name__ == "__main__":
    main()
