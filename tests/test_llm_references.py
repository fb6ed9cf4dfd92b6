"""The API references that models are given: every example runs or compiles, and every symbol exists."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from llm_examples import blocks

ROOT = Path(__file__).parent.parent
REFERENCES = ROOT / "tilebench_core" / "llm" / "references"
DSLS = ("triton", "cutile", "tilelang")
OFFLINE = [("triton", "interpret"), ("triton", "sm_90"), ("cutile", "sm_90"), ("tilelang", "sm_90")]

BROKEN = """
```python
import triton
import triton.language as tl
```

`tl.load` exists and `tl.frobnicate` does not; neither does `triton.language.extra.nothing`.

```python
assert triton.cdiv(7, 2) == 3
```
"""


def reference(dsl: str) -> str:
    return (REFERENCES / f"{dsl}.md").read_text(encoding="utf-8")


@cache
def run(dsl: str, mode: str, text: str) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).with_name("llm_examples.py")), dsl, mode]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def failures(result: dict[str, Any]) -> list[str]:
    return [f"line {block['line']}: {block['error']}" for block in result["blocks"] if block["error"]]


@pytest.mark.parametrize(("dsl", "mode"), OFFLINE)
def test_every_example_of_a_reference_runs_or_compiles(dsl, mode):
    result = run(dsl, mode, reference(dsl))
    assert failures(result) == []
    if mode != "interpret":  # all but the imports at the top launch something
        assert [block["line"] for block in result["blocks"][1:] if not block["launched"]] == []


@pytest.mark.parametrize("dsl", DSLS)
def test_every_symbol_that_a_reference_names_exists(dsl):
    assert run(dsl, "sm_90", reference(dsl))["missing"] == []


@pytest.mark.gpu
@pytest.mark.parametrize("dsl", DSLS)
def test_every_example_of_a_reference_is_right_on_a_gpu(dsl):
    assert failures(run(dsl, "cuda", reference(dsl))) == []


def test_a_wrong_example_and_an_invented_symbol_are_found():
    result = run("triton", "interpret", BROKEN)
    assert [block["error"] is None for block in result["blocks"]] == [True, False]
    assert result["missing"] == ["tl.frobnicate", "triton.language.extra.nothing"]


@pytest.mark.parametrize("dsl", DSLS)
def test_a_reference_covers_what_a_kernel_author_needs(dsl):
    text = reference(dsl)
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    for topic in ("launch", "Types", "Memory", "Arithmetic", "Reductions", "Matrix products", "Traps"):
        assert any(topic in heading for heading in headings), topic
    assert len(blocks(text)) >= 8
    assert 8_000 < len(text) < 24_000  # a prompt pays for every character


def test_the_framework_guide_states_the_contract():
    text = (REFERENCES / "framework.md").read_text(encoding="utf-8")
    for rule in ("`run", "one file", "One configuration", "autotun", "stream that is current", "delegat"):
        assert rule in text, rule
