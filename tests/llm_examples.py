"""Run every example of an API reference: `python llm_examples.py triton interpret`, in a process of its own.

The fenced Python blocks of a reference share one namespace, from the first to the last. `interpret` runs them on the
CPU, `cuda` on a GPU, checks included; `sm_90` compiles what they launch for a GPU that is not there, where nothing is
computed, so the checks of results are left out. Prints a JSON object: for each block its line, the number of kernels
that were compiled, and its error; and the names of the DSL in the text that its installed version does not have.
"""

from __future__ import annotations

import ast
import importlib
import json
import linecache
import os
import re
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilebench_core.device import CPU
from tilebench_core.kernel import Kernel
from tilebench_core.registry import installed

__all__ = ["blocks", "main", "missing_symbols"]

MODULES = {
    "tl": "triton.language",
    "triton": "triton",
    "ct": "cuda.tile",
    "T": "tilelang.language",
    "tilelang": "tilelang",
}


def blocks(text: str) -> list[tuple[int, str]]:
    """The fenced Python blocks of a Markdown text, each with the number of its first line."""
    return [
        (text[: found.start(1)].count("\n") + 1, found.group(1))
        for found in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]


def missing_symbols(text: str) -> list[str]:
    """The dotted names of a DSL in `text`, e.g. `tl.load`, that cannot be found in the installed package."""
    names = set(re.findall(rf"(?<![\w.)\]])((?:{'|'.join(MODULES)})(?:\.[A-Za-z_]\w*)+)", text))
    return sorted(name for name in names if not _exists(name))


def _exists(name: str) -> bool:
    first, *rest = name.split(".")
    found: Any = importlib.import_module(MODULES[first])
    for part in rest:
        if not hasattr(found, part):
            try:
                importlib.import_module(f"{found.__name__}.{part}")
            except (AttributeError, ImportError):
                return False
        found = getattr(found, part)
    return True


class WithoutChecks(ast.NodeTransformer):
    """Turns `assert x` into `x` and a call of torch.testing into its arguments: computed, and not compared."""

    def visit_Assert(self, node: ast.Assert) -> ast.Expr:
        return ast.Expr(node.test)

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func).startswith("torch.testing."):
            return ast.Expr(ast.Tuple(node.value.args, ast.Load()))
        return node


def runner(source: str, path: Path, module: types.ModuleType, device: str, check: bool) -> Callable[[], None]:
    """A function that runs one block in the namespace of `module`, from a file, since DSLs read the kernels' source."""
    path.write_text(source.replace('device = "cuda"', f'device = "{device}"'), encoding="utf-8")
    linecache.checkcache(str(path))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if not check:
        tree = ast.fix_missing_locations(WithoutChecks().visit(tree))
    code = compile(tree, str(path), "exec")
    return lambda: exec(code, module.__dict__)


def main(backend_name: str, mode: str, text: str) -> dict[str, Any]:
    """Run the blocks of `text` and return what is printed; an error in a block does not stop the next."""
    backend = installed().backend(backend_name).value()
    if mode == "interpret":
        os.environ.update(backend.environment(CPU))
    module = types.ModuleType("llm_examples_namespace")
    sys.modules[module.__name__] = module
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for line, source in blocks(text):
            device = "cuda" if mode == "cuda" else "cpu"
            path = Path(folder) / f"line_{line}.py"
            run = runner(source, path, module, device, check=not mode.startswith("sm_"))
            launched, error = 0, None
            try:
                if mode.startswith("sm_"):
                    launched = len(backend.compile_for(Kernel(run=run), (), {}, mode).launches)
                else:
                    run()
            except Exception as problem:  # whatever a block raises is its result
                error = f"{type(problem).__name__}: {problem}"
            results.append({"line": line, "launched": launched, "error": error})
    return {"blocks": results, "missing": missing_symbols(text)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], sys.stdin.read())))
