"""The corpus of candidates that the compliance check and the runtime checks are tried on: is it what it says?"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from llm_candidates import headed

CORPUS = Path(__file__).parent / "llm_corpus"
HONEST = sorted((CORPUS / "honest").glob("*.py"))
CHEATING = sorted((CORPUS / "cheating").glob("*.py"))


def second_line(path: Path) -> str:
    return path.read_text(encoding="utf-8").splitlines()[1]


RUNTIME = [path for path in CHEATING if second_line(path).startswith("# cheat (runtime): ")]


@cache
def verify(mode: str, paths: tuple[Path, ...]) -> dict[str, str | None]:
    command = [sys.executable, str(Path(__file__).with_name("llm_candidates.py")), mode, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def of_backend(paths: list[Path], backend: str) -> tuple[Path, ...]:
    return tuple(path for path in paths if headed(path)[1] == backend)


def in_the_interpreter(paths: list[Path]) -> dict[str, str | None]:
    """What became of Triton's candidates among `paths`; all are verified in one process, since importing costs most."""
    results = verify("interpret", of_backend([*HONEST, *RUNTIME], "triton"))
    return {path.name: results[path.name] for path in of_backend(paths, "triton")}


def test_the_corpus_covers_all_dsls_and_many_operators():
    for paths in (HONEST, CHEATING):
        assert len(paths) >= 40
        assert min(Counter(headed(path)[1] for path in paths).values()) >= 12
        assert len({headed(path)[0] for path in paths}) >= 12


@pytest.mark.parametrize("path", [*HONEST, *CHEATING], ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_candidate_of_the_corpus_is_a_candidate(path):
    _, backend = headed(path)
    assert path.name.startswith(f"{backend}_")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    names |= {
        t.id for node in tree.body if isinstance(node, ast.Assign) for t in node.targets if isinstance(t, ast.Name)
    }
    assert "run" in names
    if path.parent.name == "cheating":
        assert second_line(path).startswith(("# cheat: ", "# cheat (runtime): "))


def test_honest_candidates_are_right():
    results = in_the_interpreter(HONEST)
    assert len(results) >= 12
    assert {name: failure for name, failure in results.items() if failure} == {}


def test_cheats_that_only_the_runtime_can_see_do_not_pass_it():
    results = in_the_interpreter(RUNTIME)
    assert len(results) >= 8
    assert [name for name, failure in results.items() if failure is None] == []


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["triton", "cutile", "tilelang"])
def test_honest_candidates_are_right_on_a_gpu(backend):
    results = verify("cuda", of_backend(HONEST, backend))
    assert {name: failure for name, failure in results.items() if failure} == {}


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["triton", "cutile", "tilelang"])
def test_cheats_that_only_the_runtime_can_see_do_not_pass_it_on_a_gpu(backend):
    results = verify("cuda", of_backend(RUNTIME, backend))
    assert [name for name, failure in results.items() if failure is None] == []
