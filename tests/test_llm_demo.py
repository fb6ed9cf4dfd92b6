"""The demonstration's replies, made of an installed pack's kernels: each round is what it is said to be."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tilebench_core.llm.compliance import Verdict, check_source
from tilebench_core.registry import installed

PROGRAM = Path(__file__).parents[1] / "docs" / "llm_demo" / "pack_replies.py"


@pytest.fixture(scope="module")
def demo():
    spec = importlib.util.spec_from_file_location("pack_replies", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_round_is_what_it_is_said_to_be(demo):
    registry = installed()
    for folder in demo.OPERATORS:
        operator = registry.operator(folder)
        for backend in demo.BACKENDS:
            source = registry.kernels_for(operator, backend)[0].path.read_text(encoding="utf-8")
            texts = [
                text.partition("```python\n")[2].rpartition("```")[0] for text, _ in demo.rounds({backend: source})
            ]
            misspelt, wrong, slow, prose, better, worse, cheat, _, again, whole = texts
            assert (prose, whole, better) == ("", source, again)
            assert misspelt != source, f"{folder} {backend}: no function of the DSL was found to misspell"
            honest = [check_source(text, backend).verdict for text in (wrong, slow, better, worse, whole)]
            assert max(honest) < Verdict.VIOLATION, f"{folder} {backend}"
            assert check_source(cheat, backend).verdict is Verdict.VIOLATION
            for text, times in ((slow, 4), (better, 2), (worse, 3)):
                assert f"for _ in range({times}):\n        out = _run(*inputs, **config)" in text
