"""Arithmetic in configuration files, evaluated by simpleeval and never by Python.

An expression sees the case's parameters, `dtype_size` and the functions below. Attribute access, imports, names that
begin with an underscore, and results of absurd size are refused.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

from simpleeval import EvalWithCompoundTypes, InvalidExpression

from tilebench_core.errors import ConfigError

__all__ = ["FUNCTIONS", "evaluate", "number"]


def _range(*bounds: int) -> list[int]:
    values = range(*bounds)
    if len(values) > 10_000:
        raise ValueError(f"range of {len(values)} values; at most 10000 are allowed")
    return list(values)


FUNCTIONS = {
    "abs": abs,
    "ceil": math.ceil,
    "cdiv": lambda a, b: -(-a // b),
    "floor": math.floor,
    "log2": math.log2,
    "max": max,
    "min": min,
    "range": _range,
    "round": round,
    "sqrt": math.sqrt,
}


def evaluate(expression: str, names: Mapping[str, Any], where: str) -> Any:
    """Evaluate `expression` with `names`; `where` says in an error which file and key it came from.

    Raises ConfigError for anything but arithmetic, comparisons, lists and the functions of this module.
    """
    evaluator = EvalWithCompoundTypes(names=dict(names), functions=FUNCTIONS)
    evaluator.ATTR_INDEX_FALLBACK = False
    evaluator.nodes = {kind: handler for kind, handler in evaluator.nodes.items() if kind.__name__ != "Attribute"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # simpleeval only warns of assignments and of a second expression
            return evaluator.eval(expression)
    except (
        InvalidExpression, ArithmeticError, SyntaxError, TypeError, ValueError, LookupError,
        RecursionError, MemoryError, Warning,
    ) as error:  # fmt: skip
        known = ", ".join([*names, *FUNCTIONS])
        raise ConfigError(
            f"{where}: cannot evaluate {expression!r}: {error}; expected arithmetic over {known}"
        ) from error


_MOST_BITS = 1023  # what a float can hold


def number(value: float | int | str, names: Mapping[str, Any], where: str) -> float:
    """Return `value` itself if it is a number, or what it evaluates to; raise ConfigError if that is no finite number."""
    result = evaluate(value, names, where) if isinstance(value, str) else value
    if isinstance(result, int) and result.bit_length() > _MOST_BITS:
        raise ConfigError(f"{where}: {value!r} gives a number of {result.bit_length()} bits; expected a finite number")
    if isinstance(result, bool) or not isinstance(result, (int, float)) or not math.isfinite(result):
        raise ConfigError(f"{where}: {value!r} gives {result!r}; expected a finite number")
    return result
