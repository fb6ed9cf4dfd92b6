"""What models are told about operators: complete, generated, and with worked examples that are true."""

from __future__ import annotations

import ast
import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tilebench_core.dtypes import name_of, torch_dtype
from tilebench_core.llm.descriptions import describe, example_inputs, parameter_domain
from tilebench_core.llm.examples import EXAMPLES
from tilebench_core.operator_config import OperatorConfig
from tilebench_core.packs import Operator
from tilebench_core.registry import installed
from tilebench_core.testing.kernel_check import reference_of
from tilebench_core.verify.compare import as_outputs

ROOT = Path(__file__).parent.parent
OURS = [operator for operator in installed().operators.values() if operator.provider.name == "tilebench-operators"]
EVERY = pytest.mark.parametrize("operator", OURS, ids=lambda operator: operator.name)
HALF_A_DIGIT = 6e-5  # results are written with five digits


def independent() -> dict[str, Any]:
    """The NumPy computations that the pack's own references are tested against."""
    found: dict[str, Any] = {}
    for path in sorted((ROOT / "operator_packs/tilebench-operators/tests").glob("independent_*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found.update(module.INDEPENDENT)
    return found


INDEPENDENT = independent()
TEXTS: dict[str, str] = {}


def text_of(operator: Operator) -> str:
    """The description, built once."""
    if operator.name not in TEXTS:
        TEXTS[operator.name] = describe(operator)
    return TEXTS[operator.name]


def read_example(text: str) -> tuple[list[Any], list[torch.Tensor]]:
    """The arguments and results that a description's worked example states, as anybody would type them in."""
    code = text.partition("## Worked example")[2].partition("```python\n")[2].partition("```")[0]
    arguments, results = [], []
    for line in code.splitlines():
        if line.startswith("#"):
            continue
        name, _, rest = line.partition(" = ")
        literal, _, remark = rest.partition("  # ")
        value = ast.literal_eval(literal)
        if remark:
            shape, _, dtype = remark.rpartition(" ")
            value = torch.tensor(value, dtype=torch.float64 if "fp" in dtype or "bf" in dtype else torch_dtype(dtype))
            assert list(value.shape) == ast.literal_eval(shape)
            value = value.to(torch_dtype(dtype)) if not name.startswith("result_") else value
        (results if name.startswith("result_") else arguments).append(value)
    return arguments, results


def agree(computed: Any, stated: list[torch.Tensor]) -> None:
    outputs = [torch.as_tensor(np.asarray(output)) for output in computed]
    assert len(outputs) == len(stated)
    for output, text in zip(outputs, stated, strict=True):
        assert output.numel() == text.numel()
        torch.testing.assert_close(output.double().reshape(text.shape), text.double(), rtol=HALF_A_DIGIT, atol=1e-9)


@EVERY
def test_a_worked_example_is_what_the_reference_computes(operator):
    arguments, stated = read_example(text_of(operator))
    expected = as_outputs(reference_of(installed(), operator)(*arguments))
    agree([output.double() for output in expected], stated)


@EVERY
def test_a_worked_example_is_what_an_independent_computation_gives(operator):
    arguments, stated = read_example(text_of(operator))
    as_numpy = [
        (value.double() if value.is_floating_point() else value).numpy() if isinstance(value, torch.Tensor) else value
        for value in arguments
    ]
    # NumPy computes in fp64; the example's results were rounded to the output's dtype before they were written.
    results = INDEPENDENT[operator.folder](*as_numpy)
    results = results if isinstance(results, tuple) else (results,)
    expected = as_outputs(reference_of(installed(), operator)(*arguments))
    for result, output, text in zip(results, expected, stated, strict=True):
        coarse = torch.finfo(output.dtype).eps if output.is_floating_point() else 0
        torch.testing.assert_close(
            torch.as_tensor(np.asarray(result)).double().reshape(text.shape),
            text.double(),
            rtol=HALF_A_DIGIT + coarse,
            atol=coarse,
        )


@EVERY
def test_a_worked_example_shows_something(operator):
    arguments, results = read_example(text_of(operator))
    for result in results:
        assert 0 < result.numel() <= 60
        assert result.unique().numel() > 1 or result.numel() == 1
        if operator.name != "matrix_copy":
            tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
            assert not any(
                value.shape == result.shape and torch.equal(value.double(), result.double()) for value in tensors
            )


@EVERY
def test_a_description_names_all_there_is_to_know(operator):
    text = text_of(operator)
    for heading in ("Definition", "Arguments and results", "Parameter domain", "Tolerance", "Work", "Worked example"):
        assert f"\n## {heading}\n" in text
    for dtype in operator.config.dtypes:
        assert re.search(rf"^- {dtype} \(", text, re.MULTILINE)
    for name in operator.config.axes:
        assert f"\n- {name}: " in text
    for row in operator.config.raw["edge_cases"]:
        assert " ".join(f"{name}={value}" for name, value in row.items()) in text
    assert len(text) < 6000  # a prompt pays for every character


@EVERY
def test_the_arguments_are_those_of_the_operator(operator):
    text = text_of(operator)
    case = operator.config.cases(operator.config.dtypes[0], "smoke")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    arguments = example_inputs(operator, operator.config.dtypes[0])
    assert len(rows) == len(arguments)
    for (_, kind, _, _), value in zip(rows, arguments, strict=True):
        if isinstance(value, torch.Tensor):
            assert kind.startswith("tensor, ")
            assert kind.removeprefix("tensor, ") in ("the case's dtype", name_of(value.dtype))
    assert case.label in text


def changed(operator: Operator, **keys: Any) -> Operator:
    config = operator.config
    return replace(operator, config=OperatorConfig(config.name, config.where, {**config.raw, **keys}))


def test_a_changed_operator_has_a_changed_description():
    softmax = installed().operator("softmax")
    text = describe(changed(softmax, verify={"fp16": {"atol": 0.125, "rtol": 0}}, dtypes=["fp16"]))
    assert "|got - want| <= 0.125 + 0 · |want|" in text
    assert "fp32" not in parameter_domain(changed(softmax, dtypes=["fp16"]))
    listed = changed(softmax, case_preset="test_cases", test_cases=[{"rows": 3, "cols": 77}])
    assert "- rows=3 cols=77\n\nTimed cases: each line, 1 per dtype." in parameter_domain(listed)


def test_an_operator_of_another_pack_has_its_smoke_case_as_its_example():
    foreign = changed(installed().operator("softmax"), name="my_softmax", smoke={"rows": 2, "cols": 3})
    arguments, results = read_example(describe(foreign))
    assert list(arguments[0].shape) == list(results[0].shape) == [2, 3]
    large = changed(foreign, smoke={"rows": 50, "cols": 30})
    assert "x = ...  # [50, 30] fp16" in describe(large)


def test_every_operator_has_an_example_and_every_example_an_operator():
    assert set(EXAMPLES) == {operator.name for operator in OURS}
