"""The walls around candidates: what tries to get out, or to take too much, is stopped and reported."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tilebench_core.device import CPU
from tilebench_core.errors import ConfigError, RequestError
from tilebench_core.llm.config import Isolation
from tilebench_core.llm.walls import probe as probing
from tilebench_core.llm.walls.probe import choose_walls, probe
from tilebench_core.llm.walls.spec import BLOCKED, Walls

MODES = ["namespaces", *(["bubblewrap"] if shutil.which("bwrap") else [])]
SMALL = Isolation(memory_gb=0.5, processes=40, scratch_gb=0.1)


@pytest.fixture(scope="module")
def walls() -> Walls:
    return Walls.around("namespaces", SMALL, ["tilebench_core"], CPU)


@pytest.fixture(params=MODES)
def inside(request, walls, tmp_path):
    """Run Python code behind the walls; return the finished process."""

    def run(code: str, timeout: float = 60.0, isolation: Isolation = SMALL) -> subprocess.CompletedProcess:
        mine = replace(walls, mode=request.param, isolation=isolation)
        root = tmp_path / "root"
        root.mkdir(exist_ok=True)
        command = mine.command([sys.executable, "-I", "-S", "-c", code], root, mine.environment({"MINE": "1"}))
        planted = {**os.environ, "OPENAI_API_KEY": "sk-secret"}
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=planted)

    return run


def test_an_ordinary_program_runs(inside):
    done = inside(
        "import os, math; open('x', 'w').write('1'); print(os.getcwd(), os.environ['MINE'], open('x').read())"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "/scratch 1 1\n", "")


def test_a_process_may_write_its_own_entries_without_which_cuda_does_not_start(inside):
    done = inside("open('/proc/self/comm', 'w').write('mine'); print(open('/proc/self/comm').read(), end='')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "mine\n", "")


@pytest.mark.parametrize("mode", MODES)
def test_the_compilers_are_inside_wherever_they_lie(mode, tmp_path, monkeypatch):
    compiler = tmp_path / "toolchain" / "bin" / "my-cc"
    compiler.parent.mkdir(parents=True)
    compiler.write_text("#!/bin/sh\ncat $(dirname $0)/../include/header.h\n")
    compiler.chmod(0o755)
    (tmp_path / "toolchain" / "include").mkdir()
    (tmp_path / "toolchain" / "include" / "header.h").write_text("compiled\n")
    monkeypatch.setenv("CC", str(compiler))
    mine = Walls.around(mode, SMALL, ["tilebench_core"], CPU)
    root = tmp_path / "root"
    root.mkdir()
    command = mine.command(["/bin/sh", "-c", "my-cc && $CC"], root, mine.environment({}))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "compiled\ncompiled\n", "")


def test_the_end_of_a_program_is_its_own(inside):
    assert inside("import sys; sys.exit(3)").returncode == 3
    assert inside("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)").returncode == 128 + 11


def test_no_secret_of_the_environment_is_inside(inside):
    done = inside("import os; print(sorted(os.environ)); print(open('/proc/1/environ').read())")
    assert done.returncode == 0
    assert "sk-secret" not in done.stdout
    assert "OPENAI" not in done.stdout


def test_the_home_folder_and_the_working_directory_are_not_there(inside):
    for place in (Path.home(), Path.cwd()):
        with tempfile.NamedTemporaryFile(dir=place, prefix=".tilebench-test-") as secret:
            done = inside(f"print(open({secret.name!r}).read())")
            assert "FileNotFoundError" in done.stderr, done


def test_no_socket_reaches_anything(inside):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = inside(f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=3)")
    assert done.returncode == 1
    assert "unreachable" in done.stderr or "refused" in done.stderr
    assert inside("import socket; print(socket.if_nameindex())").stdout == "[(1, 'lo')]\n"


@pytest.mark.parametrize("path", ["/usr/x", "/x", "/etc/x", f"{sys.prefix}/x", "/dev/x", "/proc/sys/kernel/hostname"])
def test_nothing_outside_the_scratch_folder_can_be_written(inside, path):
    done = inside(f"open({path!r}, 'w').write('x')")
    assert done.returncode == 1, done
    assert not Path(path).exists() or path.startswith("/proc")


def test_the_scratch_folder_is_not_endless(inside):
    done = inside("with open('big', 'wb') as f:\n  for _ in range(400): f.write(bytes(1 << 20))")
    assert "No space left" in done.stderr


def test_forking_without_end_is_stopped_and_reported(inside):
    started = time.monotonic()
    done = inside("import os, time\nfor _ in range(9):\n  try: os.fork()\n  except OSError: pass\ntime.sleep(60)")
    assert done.returncode in BLOCKED
    assert "more than 40 processes" in done.stderr
    assert time.monotonic() - started < 30


def test_memory_without_end_is_stopped_and_reported(inside):
    done = inside("held = []\nwhile True: held.append(bytearray(1 << 24))")
    assert "MemoryError" in done.stderr  # the limit of one process
    held = "import os, time\nfor _ in range(3): os.fork()\nheld = bytearray(200 << 20); time.sleep(60)"
    done = inside(held)  # eight processes, each below the limit
    assert BLOCKED[done.returncode] == "more memory than allowed"
    assert "GiB of memory" in done.stderr


def test_a_candidate_that_hangs_dies_with_its_parent_and_leaves_nothing(walls, tmp_path):
    for mode in MODES:
        mine = replace(walls, mode=mode)
        code = "import os, time\nif os.fork() == 0: os.setsid()\nprint('up', flush=True); time.sleep(3600)"
        command = mine.command([sys.executable, "-I", "-S", "-c", code], tmp_path, mine.environment({}))
        process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        assert process.stdout.readline() == b"up\n"
        assert process.stdout.readline() == b"up\n"
        os.killpg(process.pid, 9)
        process.wait()
        assert process.stdout.read() == b"", mode  # ends only when every process inside has let go of the pipe
        process.stdout.close()


def test_processes_outside_cannot_be_seen_or_killed(inside):
    done = inside(f"import os; print([p for p in os.listdir('/proc') if p.isdigit()]); os.kill({os.getpid()}, 9)")
    assert "ProcessLookupError" in done.stderr
    assert done.stdout == "['1', '2']\n"


def test_no_privileges_are_left(inside):
    done = inside("import os; print(os.getuid(), open('/proc/self/status').read()); os.setuid(0)")
    assert done.returncode == 1  # there is no root inside to become
    assert "CapEff:\t0000000000000000" in done.stdout
    assert "NoNewPrivs:\t1" in done.stdout


@pytest.mark.parametrize("mode", MODES)
def test_the_probe_proves_the_walls(walls, mode):
    assert probe(replace(walls, mode=mode)) is None


def test_the_probe_sees_that_nothing_stands(walls):
    found = probe(replace(walls, mode="none"))
    assert all(word in found for word in ("environment", "home", "network", "disk"))


def test_without_walls_nothing_runs_unless_the_user_insists(walls, monkeypatch):
    monkeypatch.setattr(probing, "probe", lambda walls: "unshare: Operation not permitted")
    asked = replace(walls, isolation=Isolation(mode="namespaces"))
    with pytest.raises(RequestError, match=r"not permitted.*isolation\.insist=true"):
        choose_walls(asked)
    assert choose_walls(replace(asked, isolation=Isolation(mode="namespaces", insist=True))).mode == "none"


def test_bubblewrap_is_taken_first_and_missed_by_name(walls, monkeypatch):
    monkeypatch.setattr(probing, "probe", lambda walls: None)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/bwrap")
    asked = replace(walls, isolation=Isolation())
    assert choose_walls(asked).mode == "bubblewrap"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert choose_walls(asked).mode == "namespaces"
    with pytest.raises(RequestError, match="bwrap is not installed"):
        choose_walls(replace(walls, isolation=Isolation(mode="bubblewrap")))


def test_no_walls_at_all_must_be_said_twice():
    from tilebench_core.llm.config import llm_config

    protocol = {"name": "p", "unit": "single", "rounds": 1, "case": "grid"}
    composed = {
        "operators": {"relu": {}},
        "backends": {"x": {}},
        "protocol": protocol,
        "model": {"provider": "p", "name": "n"},
    }
    with pytest.raises(ConfigError, match="insist"):
        llm_config({**composed, "isolation": {"mode": "none"}})
