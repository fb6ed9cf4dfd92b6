"""Formulas in configuration files do arithmetic and nothing else."""

from __future__ import annotations

import time

import pytest

from tilebench_core.errors import ConfigError
from tilebench_core.expressions import evaluate, number

NAMES = {"rows": 4, "cols": 10, "dtype_size": 2}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("5 * rows * cols", 200),
        ("2 * rows * cols * dtype_size", 160),
        ("[512 * i for i in range(1, 4)]", [512, 1024, 1536]),
        ("cdiv(cols, 3) + ceil(2.1) + floor(2.9) + round(2.4)", 11),
        ("max(rows, cols) ** 2 if cols > rows else 0", 100),
        ("rows * log2(8) + sqrt(4) + abs(-1) + min(1, 2)", 16.0),
        ("[a for a in range(10) if a % 3 == 0]", [0, 3, 6, 9]),
        ("1_000_000", 1_000_000),
    ],
)
def test_arithmetic_over_the_parameters_of_a_case_is_evaluated(expression, value):
    assert evaluate(expression, NAMES, "here") == value


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "open('/etc/passwd')",
        "exec('1')",
        "rows.__class__",
        "rows.real",
        "().__class__.__bases__[0].__subclasses__()",
        "'{0.__class__}'.format(rows)",
        "f'{rows.__class__}'",
        "__builtins__",
        "lambda: 1",
        "(lambda x: x)(1)",
        "import os",
        "rows = 3",
        "rows; cols",
        "rows := 3",
        "min(*cols)",
        "print(rows)",
        "[x for x in ().__class__.__bases__]",
    ],
)
def test_what_is_more_than_arithmetic_is_refused(expression):
    with pytest.raises(
        ConfigError, match=r"^file.yaml: metrics: cannot evaluate .*; expected arithmetic over rows, cols"
    ):
        evaluate(expression, NAMES, "file.yaml: metrics")


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9**9",
        "2**1000000000",
        "2**2**100000",
        "1 << 10**9",
        "'a' * 10**9",
        "[0] * 10**9",
        "range(10**9)",
        "[i for i in range(10000) for j in range(10000)]",
        "[[i for j in range(10000)] for i in range(10000)]",
        "-" * 100_000 + "1",
        "(" * 5000 + "1" + ")" * 5000,
    ],
)
def test_what_would_take_forever_or_all_memory_is_refused_at_once(expression):
    begun = time.process_time()
    with pytest.raises(ConfigError, match="cannot evaluate"):
        evaluate(expression, NAMES, "here")
    assert time.process_time() - begun < 2


@pytest.mark.parametrize(
    "expression",
    [
        "1 / 0",
        "sqrt(-1)",
        "log2(0)",
        "cdiv(1, 0)",
        "[1, 2][5]",
        "{'a': 1}['b']",
        "max([])",
        "rows if",
        "",
        "wors",
        "range('a')",
    ],
)
def test_an_expression_that_has_no_value_is_an_error_with_its_place(expression):
    with pytest.raises(ConfigError, match=r"^here: cannot evaluate"):
        evaluate(expression, NAMES, "here")


@pytest.mark.parametrize(
    "value", ["[1, 2]", "'text'", "rows > 1", "1e308 * 10", "max", "2 ** 100000", float("nan"), True]
)
def test_a_number_is_a_finite_number(value):
    with pytest.raises(ConfigError, match="expected a finite number"):
        number(value, NAMES, "here")


def test_a_number_stands_for_itself():
    assert number(3, NAMES, "here") == 3
    assert number("rows / 8", NAMES, "here") == 0.5
