"""`key=value` arguments of the diagnosis commands, the same grammar as `tilebench run`, read without Hydra."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from tilebench_core.case import Case
from tilebench_core.errors import RequestError, nearest
from tilebench_core.packs import Operator
from tilebench_core.registry import Registry

__all__ = ["Request", "case_named", "dtypes_of", "operators_named", "parse_request"]

_OPEN = ("config", "backends", "case")


@dataclass(frozen=True)
class Request:
    """Checked arguments. `values` holds the plain keys, each a list; the dotted ones are sorted by what they belong to."""

    values: Mapping[str, list[Any]]
    config: Mapping[str, list[Any]] = field(default_factory=dict)
    backends: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)

    def many(self, key: str, default: Sequence[str]) -> list[str]:
        """All values of a key, as text."""
        return [str(value) for value in self.values.get(key, default)]

    def one(self, key: str, default: str) -> str:
        """The single value of a key; RequestError if several were given."""
        found = self.many(key, [default])
        if len(found) != 1:
            raise RequestError(f"{key}={found}: expected one value")
        return found[0]

    def choice(self, key: str, allowed: Sequence[str]) -> str:
        """The single value of a key, the first of `allowed` without one; RequestError for anything that is not in it."""
        value = self.one(key, allowed[0])
        if value not in allowed:
            raise RequestError(f"{key}={value}: expected {' or '.join(allowed)}")
        return value

    @property
    def configs(self) -> list[dict[str, Any]]:
        """Every combination of the values given for keys of the configuration; one empty mapping without any."""
        return [dict(zip(self.config, point, strict=True)) for point in itertools.product(*self.config.values())]


def parse_request(arguments: Sequence[str], keys: Sequence[str]) -> Request:
    """Read `key=value`, `key=[a,b]`, `config.KEY=…`, `backends.NAME.OPTION=…` and `case.PARAMETER=…`.

    Raises RequestError for anything else, with the nearest of `keys`.
    """
    values: dict[str, list[Any]] = {}
    config: dict[str, list[Any]] = {}
    backends: dict[str, dict[str, Any]] = {}
    params: dict[str, Any] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals or not text:
            raise RequestError(f"{argument!r}: expected key=value, with one of {', '.join(keys)}.{nearest(key, keys)}")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise RequestError(f"{argument!r}: {text!r} is no value; lists are written [a,b]") from error
        several = value if isinstance(value, list) else [value]
        first, _, rest = key.partition(".")
        if key in keys:
            values[key] = several
        elif first == "config" and rest:
            config[rest] = several
        elif first == "case" and rest:
            params[rest] = value
        elif first == "backends" and rest.count(".") == 1:
            name, _, option = rest.partition(".")
            backends.setdefault(name, {})[option] = value
        else:
            expected = f"{', '.join(keys)}, config.KEY, case.PARAMETER, backends.NAME.OPTION"
            raise RequestError(f"{key}: unknown key; expected one of {expected}.{nearest(key, keys)}")
    return Request(values, config, backends, params)


def operators_named(registry: Registry, names: Sequence[str]) -> list[Operator]:
    """The operators with these names, or every installed one for "all"."""
    if list(names) == ["all"]:
        return list(registry.operators.values())
    return [registry.operator(name) for name in names]


def dtypes_of(operator: Operator, wanted: Sequence[str]) -> list[str]:
    """The operator's dtypes among `wanted`; "first" is the first it has, "all" every one. RequestError for none."""
    if list(wanted) == ["all"]:
        return list(operator.config.dtypes)
    if list(wanted) == ["first"]:
        return [operator.config.dtypes[0]]
    found = [dtype for dtype in operator.config.dtypes if dtype in wanted]
    if not found:
        raise RequestError(
            f"{operator.name} has the dtypes {', '.join(operator.config.dtypes)}, not {', '.join(wanted)}"
        )
    return found


def case_named(operator: Operator, dtype: str, name: str, params: Mapping[str, Any]) -> Case:
    """The case `largest`, `smoke`, `first`, or the one at an index of the grid, with `params` replaced."""
    grid = operator.config.cases(dtype)
    if name in ("largest", "first"):
        case = operator.config.largest(dtype) if name == "largest" else grid[0]
    elif name == "smoke":
        case = operator.config.cases(dtype, "smoke")[0]
    elif name.isdigit() and int(name) < len(grid):
        case = grid[int(name)]
    else:
        raise RequestError(f"case={name}: expected largest, first, smoke, or an index from 0 to {len(grid) - 1}")
    for key in params:
        if key not in case.params:
            raise RequestError(f"case.{key}: {operator.name} has {', '.join(case.params)}.{nearest(key, case.params)}")
    return Case(case.operator, case.dtype, {**case.params, **params}, case.kind, case.index)
