"""The compliance check: patterns that are forbidden are found, and what only looks like them is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilebench_core.errors import RequestError
from tilebench_core.llm.compliance import Verdict, check_source

HEAD = """\
import functools
import math
import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel

CACHE = {}
COUNT = 0


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, x * 2 + tl.sum(x, 0), mask=i < n)

"""
RUN = """
def run(x):
    y = torch.empty_like(x)
    n = x.numel()
    kernel[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
    return y
"""


def verdict(code: str, backend: str = "triton") -> Verdict:
    return check_source(code, backend).verdict


def test_a_plain_kernel_is_clear():
    assert verdict(HEAD + RUN) is Verdict.CLEAR


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("delegation", "def run(x):\n    kernel[(1,)](x, x, 1, BLOCK=1)\n    return torch.softmax(x, -1)"),
        ("delegation", "from torch import matmul as mm\ndef run(x):\n    kernel\n    return mm(x, x)"),
        ("delegation", "import torch.nn.functional as F\ndef run(x):\n    kernel\n    return F.relu(x)"),
        ("delegation", "def run(x):\n    kernel\n    return x @ x"),
        ("delegation", "def run(x):\n    kernel\n    n = x.shape\n    return x * 2"),
        ("delegation", "def run(x: torch.Tensor):\n    kernel\n    return x.sum(-1)"),
        ("delegation",
            "def helper(a, b):\n    return a + b\ndef run(x: torch.Tensor):\n    kernel\n"
            "    return helper(x, x)"),
        ("delegation", "f = torch.relu\ndef run(x):\n    kernel\n    return f(x)"),
        ("delegation", "def run(x):\n    kernel\n    return getattr(torch, 'relu')(x)"),
        ("delegation", "def run(x):\n    kernel\n    return list(map(torch.relu, [x]))[0]"),
        ("delegation", "def run(x):\n    kernel\n    return torch.ops.aten.relu(x)"),
        ("delegation", "import cupy\ndef run(x):\n    kernel\n    return x"),
        ("delegation", "import numpy as np\ndef run(x):\n    kernel\n    return x"),
        ("dynamic", "def run(x):\n    kernel\n    return getattr(torch, 're' + 'lu')(x)"),
        ("dynamic", "def run(x):\n    kernel\n    return eval('torch.relu')(x)"),
        ("delegation", "def run(x, y):\n    kernel\n    return sum([x, y])"),
        ("delegation", "def run(x):\n    kernel\n    return x.T.contiguous()"),
        ("dynamic", "from operator import methodcaller\ndef run(x):\n    kernel\n    return methodcaller('sum')(x)"),
        ("dynamic", "def run(x, y):\n    kernel\n    return x.__add__(y)"),
        ("dynamic", "match torch:\n    case object(relu=f):\n        pass\ndef run(x):\n    kernel\n    return f(x)"),
        ("state",
            "def memory():\n    x = yield\n    while True:\n        yield x\nM = memory()\n"
            "def run(x):\n    kernel\n    return M.send(x)"),
        ("state",
            "class W:\n    kept = {}\n    @classmethod\n    def of(cls, x):\n"
            "        cls.kept[x.shape] = torch.empty(x.shape)\n"
            "        return cls.kept[x.shape]\ndef run(x):\n    kernel\n    return W.of(x)"),
        ("dynamic", "open = open\ndef run(x):\n    kernel\n    return x"),
        ("state", "def run(x):\n    kernel\n    CACHE[x.data_ptr()] = 1\n    return x"),
        ("state", "def run(x):\n    y = torch.empty_like(x)\n    kernel\n    CACHE[x.shape] = y\n    return y"),
        ("state", "def run(x):\n    global COUNT\n    kernel\n    COUNT += 1\n    return x"),
        ("state",
            "@functools.lru_cache\ndef made(x):\n    return torch.empty_like(x)\n"
            "def run(x):\n    kernel\n    return made(x)"),
        ("state", "def run(x):\n    kernel\n    run.kept = x.view(-1)\n    return x"),
        ("tuning",
            "@triton.autotune(configs=[], key=[])\n@triton.jit\ndef k2(x):\n    pass\n"
            "def run(x):\n    k2\n    return x"),
        ("tuning", "import time\ndef run(x):\n    kernel\n    return x"),
        ("precision", "torch.backends.cuda.matmul.allow_tf32 = True\n" + RUN),
        ("precision", "torch.set_float32_matmul_precision('high')\n" + RUN),
        ("process", "import os\n" + RUN),
        ("process", "import subprocess\n" + RUN),
        ("network", "import socket\n" + RUN),
        ("files", "from pathlib import Path\n" + RUN),
        ("patching", "torch.empty_like = None\n" + RUN),
        ("patching", "def run(x):\n    kernel\n    return x.__class__.__subclasses__()"),
        ("patching", "import importlib\n" + RUN),
        ("harness", "from tilebench_core.verify import compare\n" + RUN),
        ("harness", "def run(x):\n    kernel\n    torch.are_deterministic_algorithms_enabled()\n    return x"),
        ("streams", "def run(x):\n    kernel\n    s = torch.cuda.Stream()\n    return x"),
        ("imports", "from torch import *\n" + RUN),
        ("kernel", "def run(x):\n    return torch.empty_like(x)"),
    ],
)  # fmt: skip
def test_what_the_contract_forbids_is_a_violation(rule, code):
    found = check_source(HEAD + code, "triton").findings
    assert (rule, Verdict.VIOLATION) in {(finding.rule, finding.verdict) for finding in found}


@pytest.mark.parametrize(
    "code",
    [
        "def softmax(x):\n    y = torch.empty_like(x)\n"
        "    kernel[(1,)](x, y, 1, BLOCK=1)\n    return y\ndef run(x):\n"
        "    return softmax(x)",
        "class Ops:\n    def matmul(self, x):\n        return x\nops = Ops()\n"
        "def run(x):\n    kernel\n    return ops.matmul(x)",
        "def run(input, n):\n    y = torch.empty(n, device=input.device)\n"
        "    kernel[(n // 2 + 1,)](input, y, n, BLOCK=64)\n    return y",
        "def run(x):\n    rows, cols = x.shape\n"
        "    if rows > 4 and cols * x.element_size() % 16 == 0:\n        kernel\n"
        "    return torch.empty_like(x)",
        "def default(case):\n    return {'BLOCK': 256 if case.dtype == 'fp16' else 128}\n" + RUN,
        "def run(x):\n    y = torch.zeros_like(x)\n"
        "    kernel[(1,)](x.view(-1), y, 1, BLOCK=1)\n    return y[:, :3].transpose(0, 1)",
        "@functools.lru_cache(None)\ndef blocks(n):\n    return max(16, n)\ndef run(x):\n"
        "    kernel[(blocks(x.numel()),)](x, x, 1, BLOCK=1)\n    return x",
        "def build():\n    @triton.jit\n    def inner(x):\n        pass\n"
        "    return inner\ndef run(x):\n    if 'k' not in CACHE:\n"
        "        CACHE['k'] = build()\n    CACHE['k'][(1,)](x)\n"
        "    return torch.empty_like(x)",
    ],
)  # fmt: skip
def test_what_only_looks_forbidden_is_no_violation(code):
    found = check_source(HEAD + code, "triton")
    assert found.verdict <= Verdict.NOTED, found.findings


def test_an_honest_kernel_in_each_dsl_of_the_pack_is_no_violation():
    import tilebench_operators

    root = Path(next(iter(tilebench_operators.__path__)))
    checked = 0
    for path in root.glob("*/impl_*.py"):
        backend, text = path.stem.removeprefix("impl_"), path.read_text()
        if backend not in ("triton", "cutile", "tilelang") or "tilebench_operators" in text:
            continue  # a candidate is one file; kernels that share helpers of the pack are not
        found = check_source(text, backend)
        assert found.verdict < Verdict.VIOLATION, (path, [f for f in found.findings if f.verdict is Verdict.VIOLATION])
        checked += 1
    assert checked > 20


def test_a_text_that_does_not_parse_and_a_dsl_without_rules():
    assert verdict("def run(:\n") is Verdict.VIOLATION
    with pytest.raises(RequestError, match="no compliance rules"):
        check_source("", "helion")


def test_every_finding_is_on_its_line():
    (finding,) = check_source(HEAD + RUN + "import socket\n", "triton").findings
    assert finding.line == len((HEAD + RUN).splitlines()) + 1


CORPUS = Path(__file__).parent / "llm_corpus"


def corpus(kind: str) -> list[tuple[str, str, str]]:
    """(name, backend, text) of every candidate of the corpus."""
    found = []
    for path in sorted((CORPUS / kind).glob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append((path.name, text.partition("backend: ")[2].split("\n", 1)[0].strip(), text))
    return found


@pytest.mark.parametrize(("name", "backend", "text"), corpus("honest"), ids=lambda value: value[:40])
def test_no_honest_candidate_of_the_corpus_is_called_a_violation(name, backend, text):
    found = check_source(text, backend)
    assert found.verdict < Verdict.VIOLATION, found.findings


@pytest.mark.parametrize(
    ("name", "backend", "text"),
    [row for row in corpus("cheating") if "# cheat (runtime)" not in row[2].splitlines()[1]],
    ids=lambda value: value[:40],
)
def test_no_cheat_of_the_corpus_that_can_be_read_gets_through(name, backend, text):
    """What needs review never counts until a person has looked; the others of the corpus are for the runtime checks."""
    assert check_source(text, backend).verdict > Verdict.NOTED
