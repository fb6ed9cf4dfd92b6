"""Every operator's reference against an independent computation, and its tolerance against wrong results."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tilebench_core.case import Case
from tilebench_core.definition import Draw
from tilebench_core.dtypes import name_of
from tilebench_core.packs import Operator
from tilebench_core.registry import installed
from tilebench_core.testing.controls import negative_controls
from tilebench_core.testing.kernel_check import reference_of
from tilebench_core.verify.compare import as_outputs, compare_outputs

SMALL = 300_000  # elements over all inputs: larger edge cases are left to the GPU


def independent() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(Path(__file__).parent.glob("independent_*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found.update(module.INDEPENDENT)
    return found


INDEPENDENT = independent()
OURS = [operator for operator in installed().operators.values() if operator.provider.name == "tilebench-operators"]
PAIRS = [
    pytest.param(operator, dtype, id=f"{operator.folder}-{dtype}")
    for operator in OURS
    for dtype in operator.config.dtypes
]


def as_numpy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.double().numpy() if value.is_floating_point() else value.numpy()


def draw(operator: Operator, case: Case, seed: int = 0) -> tuple[Any, ...]:
    return operator.load().inputs(case, Draw("cpu", seed))


def small_cases(operator: Operator, dtype: str) -> list[Case]:
    cases = [*operator.config.cases(dtype, "smoke"), *operator.config.cases(dtype, "edge")]
    bounded = [case for case in cases if operator.config.bytes(case) / case.dtype_size < 2 * SMALL]
    return [
        case
        for case in bounded
        if sum(value.numel() for value in draw(operator, case) if isinstance(value, torch.Tensor)) <= SMALL
    ]


@pytest.mark.parametrize(("operator", "dtype"), PAIRS)
def test_the_reference_agrees_with_an_independent_computation(operator: Operator, dtype: str) -> None:
    cases = small_cases(operator, dtype)
    assert len(cases) >= 3, "smoke and at least two edge cases must be small"
    for case in cases:
        inputs = draw(operator, case)
        expected = as_outputs(reference_of(installed(), operator)(*inputs))
        computed = as_outputs(INDEPENDENT[operator.folder](*[as_numpy(value) for value in inputs]))
        converted = tuple(
            torch.from_numpy(np.ascontiguousarray(array)).to(output.dtype)
            for array, output in zip(computed, expected, strict=True)
        )
        comparison = compare_outputs(
            expected, converted, (), lambda name, case=case: operator.config.tolerance(case, name)
        )
        assert comparison.passed, f"{case.label}: {comparison.message}"


@pytest.mark.parametrize(("operator", "dtype"), PAIRS)
def test_the_tolerance_rejects_wrong_results(operator: Operator, dtype: str) -> None:
    case = max(small_cases(operator, dtype), key=operator.config.bytes)
    inputs = draw(operator, case)
    reference = reference_of(installed(), operator)
    expected = as_outputs(reference(*inputs))
    names = {name_of(output.dtype) for output in expected}
    tolerances = {name: operator.config.tolerance(case, name) for name in names}
    definition = operator.load()
    seen = []
    for control, wrong in negative_controls(case, definition, reference, inputs, operator.config.precision(dtype)):
        comparison = compare_outputs(wrong, expected, (), tolerances.__getitem__)
        assert not comparison.passed, f"{control} passes on {case.label} with {tolerances}"
        seen.append(control)
    assert len(seen) + len(definition.inapplicable_controls) >= 4
