"""Verify candidates of the corpus: `python llm_candidates.py interpret triton_add_plain.py ...`, in a process of its own.

`interpret` runs Triton's on the CPU, `cuda` runs any on a GPU. Each is verified on the operator's smoke case in its first
dtype, on a GPU on every edge case and dtype as well. Prints a JSON object: file name → None, or the first check that
failed with its message.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tilebench_core.case import Case
from tilebench_core.device import CPU
from tilebench_core.packs import Operator
from tilebench_core.registry import installed

__all__ = ["headed", "main"]

HEAD = re.compile(r"# operator: (\w+), backend: (triton|cutile|tilelang)\n")


def headed(path: Path) -> tuple[str, str]:
    """The operator and the backend that a candidate's first line names."""
    found = HEAD.match(path.read_text(encoding="utf-8"))
    assert found, f"{path}: the first line must be `# operator: NAME, backend: NAME`"
    return found[1], found[2]


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cases_of(operator: Operator, device: str) -> list[Case]:
    if device == "cpu":
        return list(operator.config.cases(operator.config.dtypes[0], "smoke"))
    return [
        case
        for dtype in operator.config.dtypes
        for kind in ("smoke", "edge")
        for case in operator.config.cases(dtype, kind)
    ]


def verified(path: Path, device: str) -> str | None:
    """None if the candidate passes every case, or what failed first."""
    from tilebench_core.testing.kernel_check import reference_of
    from tilebench_core.verify import precision_state, prepare_case, verify_launch

    operator = installed().operator(headed(path)[0])
    run = loaded(path).run
    for case in cases_of(operator, device):
        tolerance = partial(operator.config.tolerance, case)
        with precision_state("fp32"):
            prepared = prepare_case(case, operator.load(), reference_of(installed(), operator), tolerance, device, 0)
        with precision_state(operator.config.precision(case.dtype)):
            verdict = verify_launch(prepared, partial(run, *prepared.inputs))
        if not verdict.passed:
            return f"{case.dtype} {case.label}: {verdict.check}: {verdict.message}"
    return None


def main(mode: str, paths: list[Path]) -> dict[str, str | None]:
    """Verify every file; an exception of a candidate is what failed."""
    if mode == "interpret":
        os.environ.update(installed().backend("triton").value().environment(CPU))
    results: dict[str, str | None] = {}
    for path in paths:
        try:
            results[path.name] = verified(path, "cpu" if mode == "interpret" else "cuda")
        except Exception as problem:  # whatever a candidate raises is its result
            results[path.name] = f"{type(problem).__name__}: {problem}"
    return results


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], [Path(name) for name in sys.argv[2:]])))
